"""The builder: what it writes, and what it refuses to write."""

import re

import pytest

from cuteblas.codegen.builder import Guard, KernelBuilder
from cuteblas.codegen.copies import CpAsync, Vector
from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.fma import Fma
from cuteblas.codegen.values import integer
from cuteblas.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    Tensor,
    _,
    domain_offset,
    local_tile,
    make_identity_tensor,
)


def builder(**options):
    return KernelBuilder("kernel", 64, **options)


def global_tensor(k, shape, stride, *, name="A", const=True, alignment=16):
    return Tensor(k.pointer(name, "float32", const=const, alignment=alignment),
                  Layout(shape, stride))


def test_a_vector_that_is_not_contiguous_is_refused():
    k = builder()
    A, r = global_tensor(k, (4, 8), (8, 1)), k.registers("r", "float32", Layout((4, 8)))
    with pytest.raises(CodegenError, match="not contiguous"):
        k.copy(Vector(4), A, r)
    k.copy(Vector(1), A, r)


def test_a_vector_that_is_not_provably_aligned_is_refused():
    k = builder()
    ld = k.integer("ld", lo=None)
    A, r = global_tensor(k, (4, 8), (1, ld)), k.registers("r", "float32", Layout((4, 8)))
    with pytest.raises(CodegenError, match="not provably aligned to 16 bytes"):
        k.copy(Vector(4), A, r)
    k = builder()
    A, r = global_tensor(k, (4, 8), (1, k.integer("ld", lo=None, multiple=4))), k.registers("r", "float32", Layout((4, 8)))
    k.copy(Vector(4), A, r)
    assert "cb::load_global<4>(&r[j * 4], &A[j * ld]);" in k.build().body


@pytest.mark.parametrize("alignment, offset", [(4, 0), (16, 2)])
def test_the_pointer_and_the_offset_count(alignment, offset):
    k = builder()
    A = global_tensor(k, (8,), (1,), alignment=alignment)
    A = Tensor(A.engine + offset, A.layout)
    with pytest.raises(CodegenError, match="aligned"):
        k.copy(Vector(4), A, k.registers("r", "float32", Layout((8,))))


def test_a_pinned_pointer_remembers_its_alignment():
    k = builder()
    A = global_tensor(k, (64, 8), (1, k.integer("ld", lo=None, multiple=4)))
    pinned = k.pin("tA", local_tile(A, (4, 8), (k.thread % 16, 0)))
    k.copy(Vector(4), pinned, k.registers("r", "float32", Layout((4, 8))))
    k = builder()
    A = global_tensor(k, (64, 8), (1, k.integer("ld", lo=None, multiple=4)))
    pinned = k.pin("tA", local_tile(A, (2, 8), (k.thread, 0)))
    with pytest.raises(CodegenError, match="aligned"):
        k.copy(Vector(4), Tensor(pinned.engine, Layout((4, 8), (1, 4))),
               k.registers("r", "float32", Layout((4, 8))))


def test_modes_that_do_not_match_are_refused():
    k = builder()
    A = global_tensor(k, (4, 8), (1, 4))
    with pytest.raises(CodegenError, match="extents differ"):
        k.copy(Vector(1), A, k.registers("r", "float32", Layout((4, 4))))
    with pytest.raises(CodegenError, match="does not split into vectors"):
        k.copy(Vector(8), A, k.registers("q", "float32", Layout((4, 8))))
    with pytest.raises(CodegenError, match="smem to rmem, rmem to smem, not gmem to gmem"):
        k.copy(Vector(1), A, global_tensor(k, (4, 8), (1, 4), name="B"))
    with pytest.raises(CodegenError, match="not known when the kernel is generated"):
        k.copy(Vector(1), global_tensor(k, (4, k.integer("n")), (1, 4), name="D"),
               k.registers("p", "float32", Layout((4, 8))))
    with pytest.raises(CodegenError, match="1, 2, 4, 8 or 16 elements, got 3"):
        k.copy(Vector(3), global_tensor(k, (3, 2), (1, 4), name="F"),
               k.registers("o", "float32", Layout((3, 2))))
    with pytest.raises(CodegenError, match="is not the outer product"):
        c, a, b = (k.registers(f"fragment{i}", "float32", Layout(shape))
                   for i, shape in enumerate((((2, 2), 1, 1), (2, 2), (2, 1))))
        k.gemm(Fma(), c, a, b)
    with pytest.raises(CodegenError, match="used twice"):
        k.pointer("A", "float32")
    with pytest.raises(TypeError, match="do not support element type 'float8'"):
        k.pointer("E", "float8")


def test_consecutive_multiplications_share_an_operand():
    """Rows are walked through forwards and backwards in turn, with one column each time."""
    k = builder()
    c, a, b = (k.registers(name, "float32", Layout(shape))
               for name, shape in (("c", ((2, 4), 2, 3)), ("a", (2, 2)), ("b", (4, 3))))
    k.gemm(Fma(), c, a, b)
    loops = [line.strip() for line in k.build().body.splitlines()
             if line.strip().startswith(("for", "int const at", "cb::mac"))]
    assert loops == [
        "for (int k = 0; k < 3; ++k) {",
        "for (int j = 0; j < 4; ++j) {",
        "for (int i = 0; i < 4; ++i) {",
        "int const at = (j & 1) == 0 ? i : -i + 3;",
        "cb::mac(c[(at & 1) + j * 2 + (at >> 1) * 8 + k * 16], a[(at & 1) + (at >> 1) * 2], b[j + k * 4]);"
    ]


def test_a_copy_under_a_condition_has_one_predicate_for_all_elements():
    k = builder()
    n = k.integer("n")
    A = global_tensor(k, (4, 8), (1, 4))
    k.copy(CpAsync(4), A, k.shared("s", "float32", Layout((4, 8))), when=n < 7)
    k.copy(Vector(4), A, k.registers("r", "float32", Layout((4, 8))), when=True)
    body = k.build().body
    assert re.search(r"cb::cp_async<4>\(.*, n < 7\);", body) and body.count("n < 7") == 1


def test_guards_compare_coordinates_with_extents():
    k = builder()
    M, N = k.integer("M"), k.integer("N")
    A = global_tensor(k, (M, N), (1, k.integer("ld", lo=None)))
    gA, cA = (local_tile(x, (2, 4), (k.thread, 3)) for x in (A, make_identity_tensor((M, N))))
    k.copy(Vector(1), gA, k.registers("r", "float32", Layout((2, 4))), guard=Guard(cA, (M, N)))
    body = k.build().body
    assert "tid * 2 + i < M && j + 12 < N" in body
    assert Guard(cA, (M, None)).at((0, 0)) == (k.thread * 2 < M)


def test_a_halo_ends_on_both_sides():
    k = builder()
    M, N = k.integer("M"), k.integer("N")
    where = domain_offset((-2, 0), local_tile(make_identity_tensor((M, N)), (2, 4), (k.thread, 3)))
    assert str(Guard(where, (M, N),
                     halo=True).at((1, 0))) == "tid * 2 - 1 < M && 12 < N && -1 < tid * 2 - 1"
    assert "-1 <" not in str(Guard(where, (M, N)).at((1, 0)))


def test_a_vector_lies_inside_or_outside_of_its_guard_as_a_whole():
    """It does where its first coordinate and the extent are multiples of its width."""
    def copy(multiple, start):
        k = builder()
        M = k.integer("M", multiple=multiple)
        where = domain_offset((start,), local_tile(make_identity_tensor((M,)), (16,), (0,)))
        k.copy(Vector(4), global_tensor(k, (16,), (1,)), k.registers("r", "float32", Layout((16,))),
               guard=Guard(where, (M,)))

    copy(4, 8)
    for multiple, start in ((1, 0), (2, 0), (4, 2)):
        with pytest.raises(CodegenError, match="may lie partly outside"):
            copy(multiple, start)


def test_a_guard_that_always_holds_costs_nothing():
    k = builder()
    A, c = global_tensor(k, (64, 4), (1, 64)), make_identity_tensor((64, 4))
    part, where = (local_tile(x, (1, 4), (k.thread, 0)) for x in (A, c))
    k.copy(Vector(1), part, k.registers("r", "float32", Layout((1, 4))),
           guard=Guard(where, (64, 4)))
    assert ", true)" in k.build().body


def test_swizzled_vectors_are_proved_and_split_into_a_part_per_thread_and_a_constant():
    k = builder()
    s = k.shared("s", "float32", ComposedLayout(Swizzle(3, 2, 5), 0, Layout((32, 32))))
    part = k.pin("part", local_tile(s, (4, 8), (k.thread % 8, k.thread // 16)))
    k.copy(Vector(4), part, k.registers("r", "float32", Layout((4, 8))))
    assert "part_offset" in k.build().body
    k = builder()
    s = k.shared("s", "float32", ComposedLayout(Swizzle(3, 0, 5), 0, Layout((32, 32))))
    with pytest.raises(CodegenError, match="not contiguous"):
        k.copy(Vector(4), local_tile(s, (4, 8), (0, 0)),
               k.registers("r", "float32", Layout((4, 8))))


def test_a_ring_of_swizzled_stages_moves_the_pointer():
    k = builder()
    s = k.shared("s", "float32", ComposedLayout(Swizzle(3, 2, 5), 0, Layout((32, 32, 4))))
    stage = k.variable("stage", 0, hi=3)
    k.copy(Vector(4), s[(_, 0, stage)], k.registers("r", "float32", Layout((32,))))
    assert "&s[stage * 1024 + i * 4]" in k.build().body


def test_shared_tensors_are_aligned_and_swizzles_fill_what_they_permute():
    k = builder(min_blocks=2)
    k.shared("few", "float32", Layout(3))
    k.shared("swizzled", "float32", ComposedLayout(Swizzle(3, 2, 5), 0, Layout((32, 5), (1, 33))))
    kernel = k.build()
    assert "few = cb::shared_memory<float>(0);" in kernel.body and "swizzled = cb::shared_memory<float>(128);" in kernel.body
    assert kernel.shared_bytes == 128 + 6 * 32 * 4
    assert kernel.min_blocks == 2 and "__launch_bounds__(64, 2)" in kernel.body


def test_shared_tensors_that_are_not_in_use_at_the_same_time_may_share_memory():
    k = KernelBuilder("probe", 32)
    k.shared("first", "float32", Layout(64))
    k.shared("second", "float32", Layout(64))
    k.shared("over", "int32", Layout(16), over="second")
    k.group_barrier(1 + k.thread // 16, 32)
    kernel = k.build()
    assert kernel.shared_bytes == 512 and "over = cb::shared_memory<int>(256);" in kernel.body
    assert "cb::named_barrier_sync((tid >> 4) + 1, 32);" in kernel.body


def test_scratch_is_free_again_behind():
    k = KernelBuilder("probe", 32)
    k.shared("kept", "float32", Layout(32))
    with k.scratch():
        k.shared("first", "float32", Layout(64))
        with k.scratch():
            k.shared("inner", "float32", Layout(32))
        k.shared("second", "float32", Layout(32))
    k.shared("behind", "float32", Layout(32))
    kernel = k.build()
    for name, offset in (("first", 128), ("inner", 384), ("second", 384), ("behind", 128)):
        assert f"{name} = cb::shared_memory<float>({offset});" in kernel.body
    assert kernel.shared_bytes == 512


def test_control_flow_and_names():
    k = builder(wide=True)
    n = k.integer("n")
    with k.loop("i", n, start=k.block_index("bx", "x"),
                step=k.grid_size("blocks", "x")) as i, k.when(i < 5):
        k.let("twice", i * 2)
        k.comment("here")
    with k.otherwise():
        k.let("twice", n * 3)                           # the name ended with its block
    assert k.let("constant", 7) == 7 and k.let("same", n) == n
    body = k.build().body
    assert "for (long long i = bx; i < n; i += blocks) {" in body and "long long const twice = n * 3;" in body
    with k.loop("once", 1) as j:
        assert j == 0


def test_a_gated_kernel_walks_over_blocks():
    k = builder()
    k.gate(2)
    k.each_block("block")
    k.end_block(integer(k.thread) > 7)
    kernel = k.build()
    assert [q.name for q in kernel.params] == ["gate", "gate_words", "blocks"]
    assert "cb::wait_for_launch_before();" in kernel.body
    assert "for (int block = own_block; block < blocks; block += own_blocks) {" in kernel.body
    assert "if (tid > 7) continue;" in kernel.body and kernel.body.rstrip().endswith("  }\n}")


@pytest.mark.parametrize("gated", [False, True])
def test_the_next_launch_begins_where_a_kernel_says(gated):
    """Not sooner: early blocks of it would crowd the multiprocessors that are free first. Fallbacks
    mostly end at once anyway."""
    k = builder()
    if gated:
        k.gate(2)
    k.do("syncthreads")
    k.let_next_launch_begin()
    body = k.build().body
    assert body.index("cb::wait_for_launch_before();") < body.index("cb::syncthreads();")
    assert body.count("next_launch_may_begin") == (not gated)
    assert gated or body.index("cb::syncthreads();") < body.index("cb::next_launch_may_begin();")


def test_without_a_gate_a_block_is_one():
    k = builder()
    k.each_block("block")
    k.end_block(integer(k.thread) > 7)
    body = k.build().body
    assert "int const block = blockIdx.x;" in body and "if (tid > 7) return;" in body and "for (" not in body


def test_the_comment_shows_layouts_and_counts():
    k = builder(summary="what it does")
    s = k.shared("s", "float32", Layout((8, 64)))
    k.copy(Vector(1), local_tile(s, (1, 8), (0, k.thread % 8)),
           k.registers("r", "float32", Layout((1, 8))))
    kernel = k.build()
    assert kernel.body.startswith("// what it does\n// s: shared float32 (8,64):(1,8), 2048 bytes")
    assert "shared load s" in kernel.facts and kernel.shared_bytes == 2048 and kernel.threads == 64


SEPARATORS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029",
              "\\\n", "\\", "\\ ", "??/\n", "??/", "\0", "*/", '"',
              "\ud800", "\u202e", "é"]


@pytest.mark.parametrize("where", ["summary", "note", "comment"])
@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
def test_no_text_ends_a_comment(where, separator):
    """Nor does it hide the line after it: backslashes and trigraphs join lines."""
    text = f"a{separator}planted(); // {separator}"
    k = builder(**{"summary": text} if where == "summary" else {})
    if where != "summary":
        getattr(k, where)(text)
    k.declare("after", "int32", 7)
    lines = k.build().body.encode("ascii").split(b"\n")
    (planted,) = (line.strip() for line in lines if b"planted" in line)
    assert planted.startswith(b"//") and not any(c in planted for c in b"\\?\r\v\f\x1c\0")
    assert not any(line.rstrip().endswith((b"\\", b"??/")) for line in lines)


@pytest.mark.parametrize("name", ["", "1x", "a b", "a;", "a\n", "a*/", "a//", 'a"', "é", "a\\",
                                  "a-b", "x; int y"])
def test_a_name_is_one_in_cpp(name):
    with pytest.raises(CodegenError, match="is not a name in C"):
        KernelBuilder(name, 32)
    for declare in (lambda k: k.pointer(name, "float32"), lambda k: k.integer(name),
                    lambda k: k.scalar(name, "float32"), lambda k: k.tensor_map(name),
                    lambda k: k.declare(name, "float32"), lambda k: k.variable(name, 0),
                    lambda k: k.registers(name, "float32", Layout(4)),
                    lambda k: k.shared(name, "float32", Layout(4)),
                    lambda k: k.array(name, 2, lambda i: i), lambda k: k.words(name, []),
                    lambda k: k.let(name, k.thread + 1), lambda k: k.loop(name, 8).__enter__(),
                    lambda k: k.block_index(name, "x"), lambda k: k.flag(name, k.thread.eq(0))):
        with pytest.raises(ValueError,
                           match=r"is not a name in C|name of a symbolic integer is an identifier"):
            declare(builder())


def test_single_elements_move_between_memory_and_variables():
    """The space of the memory says which function moves them; loads return the variable."""
    k = builder()
    A, s = global_tensor(k, (8,), (1,)), k.shared("s", "float32", Layout(8))
    D = global_tensor(k, (8,), (1,), name="D", const=False)
    k.store(s(k.thread), k.load(k.declare("x", "float32"), A(k.thread)))
    k.store(D(k.thread), k.load(k.declare("y", "float32"), s(7)))
    k.load(k.declare("first", "float32"), A.engine)
    assert [line.strip() for line in k.build().body.splitlines()[-9:-1]
            if "load" in line or "store" in line] == [
        "cb::load_global<1>(&x, &A[tid]);", "cb::store_shared<1>(&s[tid], &x);",
        "cb::load_shared<1>(&y, &s[7]);", "cb::store_global<1>(&D[tid], &y);",
        "cb::load_global<1>(&first, A);"]
    with pytest.raises(CodegenError, match="writes to A, which is read-only"):
        k.store(A(0), k.declare("z", "float32"))


def test_values_get_names_and_fragments_functions():
    """A named value is a constant of its type; a fragment is filled by coordinates, mode by mode."""
    k = builder()
    x = k.let("x", k.call("power_of_two", k.thread))
    r = k.registers("r", "float32", Layout((2, 3)))
    k.fill(r, lambda i, j: x + r(i, j))
    k.fill(r, x)
    body = k.build().body
    assert "float const x = cb::power_of_two(tid);" in body
    assert body.count("for (int") == 4
    assert "r[i + j * 2] = x + r[i + j * 2];" in body and "r[i + j * 2] = x;" in body
