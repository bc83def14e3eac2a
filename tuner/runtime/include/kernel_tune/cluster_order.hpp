// Numbers for the clusters of a launch, so that clusters that read the same data run in the same GPC.
//
// The hardware decides in which GPC a cluster runs; that differs from card to card, and is the same in each launch of a
// grid whose blocks are all resident at once. runtime/cluster_order.py computes the same numbers, and says more.
#ifndef KERNEL_TUNE_CLUSTER_ORDER_HPP
#define KERNEL_TUNE_CLUSTER_ORDER_HPP

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "version.hpp"

namespace kernel_tune {
inline namespace KERNEL_TUNE_NAMESPACE {
namespace detail {

constexpr int kUsualGpcs = 8;  // of a whole Hopper GPU: clusters are assumed to go to them in turn where none was seen

// Return the number of each SM's GPC: SMs that shared a cluster are in one GPC.
inline std::map<int, int> gpcs_of_sms(const std::vector<std::vector<int>>& clusters) {
    std::map<int, int> parent;
    const auto root = [&parent](int sm) {
        parent.emplace(sm, sm);
        while (parent[sm] != sm) sm = parent[sm] = parent[parent[sm]];
        return sm;
    };
    for (const std::vector<int>& sms : clusters)
        for (int sm : sms) {
            const int from = root(sm);
            parent[from] = root(sms[0]);
        }
    std::map<int, int> gpcs;
    for (const auto& entry : parent) gpcs[entry.first] = root(entry.first);
    return gpcs;
}

// Return a number for each cluster: `size` consecutive numbers, from a multiple of it, share a GPC if possible.
inline std::vector<unsigned char> cluster_order(const std::vector<int>& gpcs, std::size_t size) {
    using Clusters = std::vector<std::size_t>;
    std::vector<int> seen;  // in the order in which they come
    std::map<int, Clusters> members;
    for (std::size_t cluster = 0; cluster < gpcs.size(); ++cluster) {
        if (!members.count(gpcs[cluster])) seen.push_back(gpcs[cluster]);
        members[gpcs[cluster]].push_back(cluster);
    }
    Clusters order;
    std::vector<Clusters> rests;
    for (int gpc : seen) {
        const Clusters& all = members[gpc];
        const auto cut = all.begin() + static_cast<std::ptrdiff_t>(all.size() / size * size);
        order.insert(order.end(), all.begin(), cut);
        rests.emplace_back(cut, all.end());
    }
    // The rest of a GPC stays together if it can: a part gets the longest rest that fits, else a piece of the shortest.
    for (;;) {
        rests.erase(std::remove_if(rests.begin(), rests.end(), [](const Clusters& rest) { return rest.empty(); }), rests.end());
        if (rests.empty()) break;
        std::stable_sort(rests.begin(), rests.end(), [](const Clusters& a, const Clusters& b) { return a.size() > b.size(); });
        const std::size_t room = size - order.size() % size;
        auto best = std::find_if(rests.begin(), rests.end(), [room](const Clusters& rest) { return rest.size() <= room; });
        if (best == rests.end()) --best;
        const auto cut = best->begin() + static_cast<std::ptrdiff_t>(std::min(room, best->size()));
        order.insert(order.end(), best->begin(), cut);
        best->erase(best->begin(), cut);
    }
    std::vector<unsigned char> numbers(gpcs.size());
    for (std::size_t number = 0; number < order.size(); ++number) numbers[order[number]] = static_cast<unsigned char>(number);
    return numbers;
}

}  // namespace detail
}  // namespace KERNEL_TUNE_NAMESPACE
}  // namespace kernel_tune

#endif
