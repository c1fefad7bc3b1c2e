"""Tables filtered by column, with and without menus, and the heat maps of the atlas and the ledger."""

import dataclasses

import pytest

import guardlab as gl
from guardlab.atlas import records


@dataclasses.dataclass
class Fruit:
    """A table small enough to be read here."""

    def table(self):
        rows = [("apple", "red or green", "1"), ("lime", "green", "2"), ("rose hip", "red", "3")]
        return ("name", "its colour", "number"), rows


def names(found):
    return [row[0] for row in found.rows]


# --- browse ----------------------------------------------------------------------------------------------------------


def test_all_rows_unless_told_otherwise():
    whole = gl.browse(Fruit())
    assert names(whole) == ["apple", "lime", "rose hip"]
    assert str(whole).splitlines()[-1] == "3 of 3 rows"
    assert str(gl.browse(gl.atlas())).splitlines()[:-1] == str(gl.atlas()).splitlines()[:-1]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"its_colour": "green"}, ["apple", "lime"]),
        ({"its_colour": "red or green"}, ["apple"]),
        ({"its_colour": "red", "number": "3"}, ["rose hip"]),
        ({"text": "ROSE"}, ["rose hip"]),
        ({"text": "green", "name": "lime"}, ["lime"]),
        ({"text": "nothing"}, []),
    ],
)
def test_rows_that_are_asked_for(wanted, found):
    assert names(gl.browse(Fruit(), **wanted)) == found


def test_the_atlas_and_the_ledger_by_column():
    unsound = gl.browse(gl.atlas(), dropping_it="unsound")
    assert set(names(unsound)) == {n for n, t in gl.atlas().types.items() if "unsound" in t.verdicts}
    ledger = gl.browse(gl.claims(), measured="holds")
    assert set(names(ledger)) == {row["id"] for row in gl.claims().rows if row["verdict"] == "holds"}
    assert names(gl.browse(gl.atlas_versions(), text="GLOBAL_STATE")) == ["GLOBAL_STATE"]
    assert len(gl.browse(gl.atlas("CONSTANT_MATCH"), aot_eager="unsound").rows) == 2


def test_bad_arguments_are_told_what_there_is():
    with pytest.raises(TypeError, match=r"such as atlas\(\) or claims\(\), got a list"):
        gl.browse([1])
    with pytest.raises(ValueError, match="no column 'verdict': there are guard_type, family, dropping_it, emitted_by"):
        gl.browse(gl.atlas(), verdict="helps")
    with pytest.raises(ValueError, match="no row says 'blue' under 'its colour': there are green, red"):
        gl.browse(Fruit(), its_colour="blue")
    with pytest.raises(ValueError, match="no row says 'dict' under 'family': there are dicts"):
        gl.browse(gl.atlas(), family="dict")
    with pytest.raises(ValueError, match=r"no row says 'x' under 'guard type': .*\.\.\.$"):
        gl.browse(gl.atlas(), guard_type="x")


def test_a_table_is_escaped():
    class Script:
        def table(self):
            return ("a",), [("<b>",)]

    assert "<td" in gl.browse(Script())._repr_html_()
    assert "<b>" not in gl.browse(Script())._repr_html_()


# --- with menus ------------------------------------------------------------------------------------------------------


def controls(box):
    *menus, search = box.children[0].children
    return {menu.options[0][0].split(":")[0]: menu for menu in menus}, search, box.children[1]


def test_menus_filter_the_table_below_them():
    box = gl.browse(Fruit(), menus=True)
    menus, search, shown = controls(box)
    assert list(menus) == ["name", "its colour", "number"]
    assert [value for _, value in menus["its colour"].options] == ["", "green", "red"]
    assert menus["its colour"].label == "its colour: all"
    assert "3 of 3 rows" in shown.value
    menus["its colour"].value = "green"
    assert "2 of 3 rows" in shown.value
    assert "rose hip" not in shown.value
    search.value = "apple"
    assert "1 of 3 rows" in shown.value
    menus["its colour"].value = ""
    search.value = ""
    assert "3 of 3 rows" in shown.value


def test_menus_begin_with_what_was_asked_for_and_leave_out_columns_of_many_values():
    menus, search, shown = controls(gl.browse(gl.atlas(), text="dict", menus=True, family="dicts"))
    assert list(menus) == ["family", "dropping it"]
    assert (menus["family"].value, search.value) == ("dicts", "dict")
    assert shown.value == gl.browse(gl.atlas(), text="dict", family="dicts")._repr_html_()


def test_a_menu_has_what_was_asked_for_even_if_it_is_two_things():
    menus, _, shown = controls(gl.browse(Fruit(), menus=True, its_colour="red or green"))
    assert menus["its colour"].value == "red or green"
    assert "1 of 3 rows" in shown.value


def test_where_there_are_no_widgets_the_table_itself_is_shown():
    box = gl.browse(Fruit(), menus=True)
    menus, _, _ = controls(box)
    menus["number"].value = "2"
    bundle = box._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == str(gl.browse(Fruit(), number="2"))
    assert bundle["text/html"] == gl.browse(Fruit(), number="2")._repr_html_()


# --- heat maps -------------------------------------------------------------------------------------------------------


def test_every_type_and_verdict_is_in_the_heat_map(capsys):
    gl.show(gl.plot_atlas(gl.atlas()))
    lines = capsys.readouterr().out.splitlines()
    drawn = {line.split()[0].strip(":"): line for line in lines if line.startswith("  ")}
    assert drawn.keys() == gl.atlas().types.keys()
    for name, found in gl.atlas().types.items():
        assert [v for v in records.VERDICTS if f" {v} " in drawn[name]] == list(found.verdicts)
        assert (f"({found.status})" in drawn[name]) == (found.status != "checked")
    assert "  SEQUENCE_LENGTH: helps 1, unsound 1" in lines


def test_every_release_and_change_is_in_the_strip(capsys):
    versions = gl.atlas_versions()
    gl.show(gl.plot_versions(versions))
    out = capsys.readouterr().out
    for row in versions.table()[1]:
        assert f"  {row[0]}: " + ", ".join(map(" ".join, zip(versions.versions, row[1:], strict=True))) in out


def test_claims_are_counted_by_lesson_and_verdict(capsys):
    made = [{"lesson": "01", "verdict": "holds"}] * 2 + [{"lesson": "02", "verdict": "does not hold"}]
    gl.show(gl.plot_claims(gl.Claims(tuple(made))))
    out = capsys.readouterr().out.splitlines()
    assert "3 documented claims" in out[0]
    assert out[1:] == ["  01: holds 2", "  02: does not hold 1", "  all: holds 2, does not hold 1"]


def test_what_is_drawn_must_be_what_it_says():
    for plot, wrong, right in (
        (gl.plot_atlas, gl.claims(), r"atlas\(\)"),
        (gl.plot_versions, gl.atlas(), r"atlas_versions\(\)"),
        (gl.plot_claims, gl.atlas(), r"claims\(\)"),
    ):
        with pytest.raises(TypeError, match=f"draws what {right} returns"):
            plot(wrong)
