"""The tasks of the exercises: one module per exercise, its name the first half of the ids, ``TASKS`` in order."""
