// A shadow of the global memory that a launch may write: who wrote each cell last in this launch and who has read it since. Launches
// do not overlap, so earlier accesses are known to all.
//
// Kernels that move elements shorter than a word read the aligned words that cover their rows (aligned_down), and at both ends bytes that
// other blocks may be writing. That is no race, for they use no such byte: so these come in changed, and whoever uses one gets wrong
// values.
//
// A cell stands for 2^shift bytes; the shift of a page falls to the smallest access to it. Pages exist once they are touched.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "releases.h"

namespace cb::emulator {

struct GlobalCell {
    uint32_t write_cluster, write_clock;  // cluster 0: nobody has written or read
    uint32_t read_cluster, read_clock;
    uint16_t writer, write_line;  // thread or agent of its cluster
    uint16_t reader, read_line;
    uint32_t others;  // index of a list of further readers, 0 for none
    bool flag;        // written by store_flag
    bool covering;    // the last read was of words that cover what the reader needs
};

// Who accesses: a thread, or an agent on behalf of the running thread.
struct GlobalAccess {
    int by;
    uint32_t clock;
    int line;
    char const* what = "";  // "the TMA store ", if not the thread itself
};

class GlobalShadow {
  public:
    void start_launch() {
        forget_pages();
        regions.clear();
        region_of.clear();
        readers.assign(1, Reader{});
        free_reader = 0;
    }

    // Windows may overlap: those that do share a region, which has a shadow if one of them is written.
    void find_regions() {
        Launch const& launch = *machine.launch;
        auto const count = static_cast<size_t>(launch.window_count);
        std::vector<size_t> order;
        for (size_t i = 0; i < count; ++i)
            if (launch.windows[i].low < launch.windows[i].high) order.push_back(i);
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return launch.windows[a].low < launch.windows[b].low; });
        region_of.assign(count, -1);
        for (size_t i : order) {
            Window const& w = launch.windows[i];
            if (regions.empty() || w.low >= regions.back().high) regions.push_back({w.low, w.high, false, {}});
            Region& region = regions.back();
            region.high = std::max<uint64_t>(region.high, w.high);
            region.written = region.written || w.writable != 0;
            region_of[i] = static_cast<int>(regions.size()) - 1;
        }
        for (Region& region : regions)
            if (region.written) region.pages.resize((region.high - 1) / page_bytes - region.low / page_bytes + 1);
        for (int& number : region_of)
            if (number >= 0 && !regions[static_cast<size_t>(number)].written) number = -1;
    }

    bool watches(unsigned window) const { return region_of[window] >= 0; }

    // Returns which bytes are another block's, bit i for byte i, where those may be read that only cover what is needed.
    uint32_t read(unsigned window, uint8_t const* host, uint32_t bytes, GlobalAccess const& access, bool covering = false) {
        uint32_t foreign = 0;
        if (!watches(window)) return foreign;
        each(window, host, bytes, [&](GlobalCell& cell, uint64_t at, uint32_t size) {
            if (cell.write_cluster != 0 && !write_known(cell)) {
                if (!covering || cell.write_cluster == machine.cluster)
                    conflict(cell, true, "reads", window, at, size, access, cell.flag ? " by store_flag" : "");
                foreign |= ((1u << size) - 1) << (at - reinterpret_cast<uint64_t>(host));
            }
            note_read(cell, access, covering);
        });
        return foreign;
    }

    void write(unsigned window, uint8_t const* host, uint32_t bytes, GlobalAccess const& access) {
        if (!watches(window)) return;
        each(window, host, bytes, [&](GlobalCell& cell, uint64_t at, uint32_t size) {
            if (cell.write_cluster != 0 && !write_known(cell)) conflict(cell, true, "writes", window, at, size, access);
            if (cell.read_cluster != 0) expect_read(cell, window, at, size, access);
            note_write(cell, access, false);
        });
    }

    // Flags: stores and looks do not race with each other, and other accesses do.
    void store_flag(unsigned window, uint8_t const* host, GlobalAccess const& access) {
        if (!watches(window)) return;
        each(window, host, flag_bytes, [&](GlobalCell& cell, uint64_t at, uint32_t size) {
            if (cell.write_cluster != 0 && !cell.flag && !write_known(cell)) conflict(cell, true, "writes", window, at, size, access);
            if (cell.read_cluster != 0) expect_read(cell, window, at, size, access);
            note_write(cell, access, true);
        });
    }

    void look_at_flag(unsigned window, uint8_t const* host, GlobalAccess const& access) {
        if (!watches(window)) return;
        each(window, host, flag_bytes, [&](GlobalCell& cell, uint64_t at, uint32_t size) {
            if (cell.write_cluster != 0 && !cell.flag && !write_known(cell))
                conflict(cell, true, "looks at a flag in", window, at, size, access, " without store_flag");
        });
    }

  private:
    static constexpr uint64_t page_bytes = 4096;
    static constexpr uint32_t flag_bytes = 4;
    static constexpr int coarsest = 4;
    static constexpr int most_readers = 6;  // that a cell remembers beside the last one

    struct Page {
        GlobalCell* cells = nullptr;
        int shift = coarsest;
    };

    struct Region {
        uint64_t low, high;
        bool written;
        std::vector<Page> pages;
        int shift = coarsest;  // of new pages
    };

    struct Reader {
        uint32_t cluster, clock;
        uint16_t by, line;
        bool covering;
        uint32_t next;
    };

    std::vector<Region> regions;
    std::vector<int> region_of;  // by window; -1 if nothing writes there
    std::vector<Page*> touched;
    std::array<std::vector<std::unique_ptr<GlobalCell[]>>, coarsest + 1> spare;  // cells of pages, by shift
    std::vector<Reader> readers;
    uint32_t free_reader = 0;

    static size_t cells_of(int shift) { return page_bytes >> shift; }

    GlobalCell* new_cells(int shift) {
        auto& list = spare[static_cast<size_t>(shift)];
        GlobalCell* cells;
        if (list.empty()) {
            cells = new GlobalCell[cells_of(shift)];
        } else {
            cells = list.back().release();
            list.pop_back();
        }
        std::memset(static_cast<void*>(cells), 0, cells_of(shift) * sizeof(GlobalCell));
        return cells;
    }

    void put_back(GlobalCell* cells, int shift) {
        constexpr size_t most_bytes = 1 << 24;  // that are kept, of each shift
        auto& list = spare[static_cast<size_t>(shift)];
        std::unique_ptr<GlobalCell[]> owner(cells);
        if (list.size() * cells_of(shift) * sizeof(GlobalCell) < most_bytes) list.push_back(std::move(owner));
    }

    void forget_pages() {
        for (Page* page : touched) put_back(page->cells, page->shift);
        touched.clear();
    }

    // Cells become smaller; each part inherits all that was known of the whole.
    void refine(Page& page, Region& region, uint32_t bytes) {
        int shift = 0;
        while (bytes >> (shift + 1) != 0) ++shift;
        GlobalCell* const finer = new_cells(shift);
        size_t const parts = size_t{1} << (page.shift - shift);
        for (size_t i = 0; i < cells_of(page.shift); ++i)
            for (size_t p = 0; p < parts; ++p) {
                GlobalCell& cell = finer[i * parts + p] = page.cells[i];
                if (p == 0) continue;
                cell.others = 0;
                for (uint32_t n = page.cells[i].others; n != 0; n = readers[n].next) push_reader(cell, readers[n]);
            }
        put_back(page.cells, page.shift);
        page.cells = finer;
        page.shift = region.shift = shift;
    }

    // Calls visit(cell, host address, bytes) for the cells of an access, which is within one page.
    template <class Visit>
    void each(unsigned window, uint8_t const* host, uint32_t bytes, Visit visit) {
        Region& region = regions[static_cast<size_t>(region_of[window])];
        auto const address = reinterpret_cast<uint64_t>(host);
        Page& page = region.pages[address / page_bytes - region.low / page_bytes];
        if (page.cells == nullptr) {
            page.shift = region.shift;
            page.cells = new_cells(page.shift);
            touched.push_back(&page);
        }
        if (bytes >> page.shift == 0) refine(page, region, bytes);
        uint64_t const within = address % page_bytes;
        for (uint64_t i = within >> page.shift, end = (within + bytes) >> page.shift; i < end; ++i)
            visit(page.cells[i], address - within + (i << page.shift), 1u << page.shift);
    }

    static bool is_known(uint32_t cluster, int by, uint32_t clock) {
        if (cluster != machine.cluster) return releases.known(machine.running, {cluster, by, clock});
        return by == machine.running || machine.order.known(machine.running, by) >= clock;
    }

    static bool write_known(GlobalCell const& cell) { return is_known(cell.write_cluster, cell.writer, cell.write_clock); }

    void expect_read(GlobalCell const& cell, unsigned window, uint64_t at, uint32_t size, GlobalAccess const& access) {
        auto const expect = [&](Reader const& r) {
            if ((r.covering && r.cluster != machine.cluster) || is_known(r.cluster, r.by, r.clock)) return;
            GlobalCell other = cell;
            other.read_cluster = r.cluster;
            other.reader = r.by;
            other.read_line = r.line;
            conflict(other, false, "writes", window, at, size, access);
        };
        expect(last_reader(cell));
        for (uint32_t n = cell.others; n != 0; n = readers[n].next) expect(readers[n]);
    }

    static Reader last_reader(GlobalCell const& cell) {
        return {cell.read_cluster, cell.read_clock, cell.reader, cell.read_line, cell.covering, 0};
    }

    void note_write(GlobalCell& cell, GlobalAccess const& access, bool flag) {
        forget_reads(cell);
        cell.write_cluster = machine.cluster;
        cell.write_clock = access.clock;
        cell.writer = static_cast<uint16_t>(access.by);
        cell.write_line = short_line(access.line);
        cell.flag = flag;
    }

    void note_read(GlobalCell& cell, GlobalAccess const& access, bool covering) {
        bool const same = cell.read_cluster == machine.cluster && cell.reader == access.by;
        if (!same && cell.read_cluster != 0 && !is_known(cell.read_cluster, cell.reader, cell.read_clock))
            push_reader(cell, last_reader(cell));
        cell.read_cluster = machine.cluster;
        cell.read_clock = access.clock;
        cell.reader = static_cast<uint16_t>(access.by);
        cell.covering = covering;
        cell.read_line = short_line(access.line);
    }

    // One entry for each reader; of too many the oldest is forgotten.
    void push_reader(GlobalCell& cell, Reader reader) {
        int count = 0;
        for (uint32_t n = cell.others; n != 0; n = readers[n].next)
            if ((readers[n].cluster == reader.cluster && readers[n].by == reader.by) || ++count == most_readers) {
                reader.next = readers[n].next;
                readers[n] = reader;
                return;
            }
        uint32_t node = free_reader;
        if (node != 0) {
            free_reader = readers[node].next;
        } else {
            node = static_cast<uint32_t>(readers.size());
            readers.emplace_back();
        }
        reader.next = cell.others;
        readers[node] = reader;
        cell.others = node;
    }

    void forget_reads(GlobalCell& cell) {
        for (uint32_t n = cell.others, next; n != 0; n = next) {
            next = readers[n].next;
            readers[n].next = free_reader;
            free_reader = n;
        }
        cell.others = 0;
        cell.read_cluster = 0;
    }

    // "thread 5", and of which block if it is another one than the running thread's.
    static std::string name(uint32_t cluster, int by) {
        int const threads = static_cast<int>(machine.threads.size());
        if (by >= threads) return cluster == machine.cluster ? "an asynchronous copy of this block" : "an asynchronous copy of another block";
        if (cluster == machine.cluster) return machine.name(by);
        Extent3 const block = machine.block_of(cluster, by / machine.block_threads);
        return "thread " + std::to_string(by % machine.block_threads) + " of block (" + std::to_string(block.x) + ", " +
               std::to_string(block.y) + ", " + std::to_string(block.z) + ")";
    }

    [[noreturn]] void conflict(GlobalCell const& cell, bool wrote, char const* verb, unsigned window, uint64_t at, uint32_t size,
                               GlobalAccess const& access, char const* how = "") const {
        Window const& w = machine.launch->windows[window];
        auto const first = static_cast<long long>(at - w.address);
        bool const elsewhere = (wrote ? cell.write_cluster : cell.read_cluster) != machine.cluster;
        fail(Error::race, access.line, "%s%s bytes [%lld, %lld) of argument '%s' that %s %s%s at line %d, and no %s orders the two",
             access.what, verb, first, first + size, w.name,
             (wrote ? name(cell.write_cluster, cell.writer) : name(cell.read_cluster, cell.reader)).c_str(), wrote ? "wrote" : "read", how,
             wrote ? cell.write_line : cell.read_line, elsewhere ? "flag" : "barrier");
    }
};

inline GlobalShadow global_shadow;

}  // namespace cb::emulator
