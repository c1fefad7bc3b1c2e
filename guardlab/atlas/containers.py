"""Lists, tuples, iterators and the types of objects."""

import itertools

from .scenarios import each, guard_type

LENGTH = guard_type("SEQUENCE_LENGTH", "a list or tuple that the code reads")


@LENGTH.scenario()
def item_nobody_reads():
    """A list of which the code reads the first item grows."""

    def f(x, scales):
        return x * scales[0]

    return f, each(lambda: [2.0], lambda: [2.0, 3.0])


@LENGTH.scenario()
def list_that_is_added_up():
    """A list that the code adds up grows."""

    def f(x, scales):
        return x * sum(scales)

    return f, each(lambda: [2.0], lambda: [2.0, 3.0])


TUPLE_ITERATOR = guard_type("TUPLE_ITERATOR_LEN", "an iterator over a tuple, made outside and handed in")


@TUPLE_ITERATOR.scenario()
def iterator_read_once():
    """An iterator over a tuple, of which the code takes one item, has more to give."""

    def f(x, scales):
        return x * next(scales)

    return f, each(lambda: iter((2.0,)), lambda: iter((2.0, 3.0)))


@TUPLE_ITERATOR.scenario()
def iterator_that_is_added_up():
    """An iterator over a tuple that the code adds up has more to give."""

    def f(x, scales):
        return x * sum(scales)

    return f, each(lambda: iter((2.0,)), lambda: iter((2.0, 3.0)))


RANGE_ITERATOR = guard_type("RANGE_ITERATOR_MATCH", "an iterator over a range, made outside and handed in")


@RANGE_ITERATOR.scenario()
def range_read_once():
    """An iterator over a range, of which the code takes one item, ends later."""

    def f(x, numbers):
        return x * next(numbers)

    return f, each(lambda: iter(range(2, 4)), lambda: iter(range(2, 9)))


@RANGE_ITERATOR.scenario()
def range_that_is_added_up():
    """An iterator over a range that the code adds up ends later."""

    def f(x, numbers):
        return x * sum(numbers)

    return f, each(lambda: iter(range(2, 4)), lambda: iter(range(2, 9)))


COUNT_ITERATOR = guard_type("COUNT_ITERATOR_MATCH", "an itertools.count, made outside and handed in")


@COUNT_ITERATOR.scenario()
def count_that_went_on():
    """A counter that the code reads stands elsewhere at the second call."""

    def f(x, counter):
        return x * next(counter)

    return f, each(lambda: itertools.count(2), lambda: itertools.count(3))


@COUNT_ITERATOR.scenario()
def step_nobody_takes():
    """A counter of which the code takes one item counts in other steps."""

    def f(x, counter):
        return x * next(counter)

    return f, each(lambda: itertools.count(2, 1), lambda: itertools.count(2, 5))


class _Options:
    def __init__(self):
        self.shift = 1.0


class _Derived(_Options):
    pass


TYPE = guard_type("TYPE_MATCH", "an object, dict or number whose class decides what the code means")


@TYPE.scenario()
def class_with_the_same_attributes():
    """An object is replaced by one of a derived class that changes nothing."""

    def f(x, options):
        return x + options.shift

    return f, each(_Options, _Derived)


@TYPE.scenario()
def class_that_is_asked_for():
    """An object is replaced by one of another class, and the code asks for the class."""

    def f(x, options):
        return x + 1.0 if isinstance(options, _Derived) else x * 2.0

    return f, each(_Options, _Derived)
