// Transactions of each access, counted as a warp makes them: 32-byte sectors of global memory, wavefronts of shared memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "machine.h"

namespace cb::emulator {

class Counts {
  public:
    static constexpr uint64_t nowhere = UINT64_MAX;  // the lane was predicated off

    void note(bool shared, bool write, int bytes, int line, uint64_t address) {
        int const warp = machine.running / lanes;
        streams[{Key{line, shared, write, bytes}, warp}][machine.running % lanes].push_back(address);
    }

    // The n-th execution of an access by each lane of a warp counts as one request.
    void finish_block() {
        for (auto const& [site, stream] : streams) {
            size_t longest = 0;
            for (auto const& lane : stream) longest = std::max(longest, lane.size());
            for (size_t n = 0; n < longest; ++n) {
                std::array<uint64_t, lanes> addresses;
                for (int lane = 0; lane < lanes; ++lane) addresses[lane] = n < stream[lane].size() ? stream[lane][n] : nowhere;
                add(site.first, addresses);
            }
        }
        streams.clear();
    }

    void deliver(Launch& launch) {
        launch.count_size = 0;
        for (auto const& [key, count] : totals)
            if (launch.count_size < launch.count_capacity) launch.counts[launch.count_size++] = count;
        totals.clear();
    }

    void clear() {
        streams.clear();
        totals.clear();
    }

    using Key = std::tuple<int, bool, bool, int>;  // line, shared, write, bytes
    static constexpr int lanes = warp_threads;

    // The addresses of a warp of the running cluster at one access, lane by lane in the order of execution.
    std::map<std::pair<Key, int>, std::array<std::vector<uint64_t>, lanes>> streams;

  private:
    std::map<Key, AccessCount> totals;

    static uint64_t distinct(std::vector<uint64_t>& values) {
        std::sort(values.begin(), values.end());
        return static_cast<uint64_t>(std::unique(values.begin(), values.end()) - values.begin());
    }

    static uint64_t sectors(std::vector<uint64_t> const& addresses, uint64_t bytes, uint64_t sector) {
        std::vector<uint64_t> touched;
        for (uint64_t a : addresses)
            for (uint64_t s = a / sector; s <= (a + bytes - 1) / sector; ++s) touched.push_back(s);
        return distinct(touched);
    }

    // Of different addresses, the sectors in which some bytes are not accessed.
    static uint64_t partial(std::vector<uint64_t> const& addresses, uint64_t bytes, uint64_t sector) {
        std::map<uint64_t, uint64_t> filled;
        for (uint64_t a : addresses)
            for (uint64_t s = a / sector; s <= (a + bytes - 1) / sector; ++s)
                filled[s] += std::min(a + bytes, (s + 1) * sector) - std::max(a, s * sector);
        return static_cast<uint64_t>(std::count_if(filled.begin(), filled.end(), [&](auto const& x) { return x.second < sector; }));
    }

    // A wavefront serves one 4-byte word of each of the 32 banks, to any number of lanes. Accesses of 8 and 16 bytes go in halves
    // and quarters of the warp.
    static uint64_t wavefronts(std::array<uint64_t, lanes> const& addresses, uint64_t bytes) {
        int const group = bytes == 16 ? 8 : bytes == 8 ? 16 : 32;
        uint64_t total = 0;
        for (int first = 0; first < lanes; first += group) {
            std::array<std::vector<uint64_t>, 32> banks;
            for (int lane = first; lane < first + group; ++lane) {
                if (addresses[lane] == nowhere) continue;
                for (uint64_t word = addresses[lane] / 4; word * 4 < addresses[lane] + bytes; ++word)
                    banks[word % 32].push_back(word);
            }
            uint64_t worst = 0;
            for (auto& words : banks) worst = std::max(worst, distinct(words));
            total += worst;
        }
        return total;
    }

    void add(Key const& key, std::array<uint64_t, lanes> const& addresses) {
        auto const [line, shared, write, bytes] = key;
        std::vector<uint64_t> active;
        for (uint64_t a : addresses)
            if (a != nowhere) active.push_back(a);
        if (active.empty()) return;
        AccessCount& count = totals[key];
        count.line = line;
        count.bytes = bytes;
        count.shared = shared;
        count.write = write;
        uint64_t const size = static_cast<uint64_t>(bytes);
        uint64_t const unit = shared ? 128 : 32;
        std::vector<uint64_t> unique = active;
        unique.resize(distinct(unique));
        count.requests += 1;
        count.transactions += shared ? wavefronts(addresses, size) : sectors(active, size, unit);
        count.ideal += (unique.size() * size + unit - 1) / unit;
        if (write && !shared) count.partial += partial(unique, size, unit);
    }
};

inline Counts counts;

}  // namespace cb::emulator
