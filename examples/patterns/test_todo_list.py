"""Level 4: values that follow their cells, in an `async def` as in a plain function."""

from todo_list import todo_list

from offbook.patterns import create_harness, expect_cell


async def test_an_item_that_is_done_is_not_active():
    async with create_harness() as h:
        todo = h.load(
            todo_list,
            {"items": [{"title": "Task 1", "done": False}, {"title": "Task 2", "done": False}]},
        )
        expect_cell(todo.outputs.active).to_have_length(2)
        todo.cells.items.key(0, "done").set(True)
        await h.idle()
        assert [item["title"] for item in todo.result.active] == ["Task 2"]


async def test_the_count_follows_the_list():
    counts = []
    async with create_harness() as h:
        todo = h.load(todo_list)
        h.subscribe(todo.outputs.count, counts.append)
        todo.cells.items.push({"title": "First", "done": False})
        await h.idle()
        todo.result.add.send({"title": "Second"})
        await h.idle()
    assert counts == [0, 1, 2]
