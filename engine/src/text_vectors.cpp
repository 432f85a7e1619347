// Vectors of texts (text_vectors.h). pool_tokens clusters by Ward's method with chains of nearest neighbours (Murtagh,
// The Computer Journal 26, 1983), and numbers clusters as SciPy does.
#include "text_vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "sentence_steps.h"

namespace rf::engine {

namespace {

// Distances of pairs i != j, [n, n] without the half below the diagonal.
class Distances {
 public:
  explicit Distances(size_t n) : n_(n), values_(n * (n - 1) / 2) {}
  double& at(size_t i, size_t j) {
    if (i > j) std::swap(i, j);
    return values_[n_ * i - i * (i + 1) / 2 + j - i - 1];
  }

 private:
  size_t n_;
  std::vector<double> values_;
};

struct Merge {
  size_t a, b;  // vectors or clusters; merge k makes cluster n + k
  double distance;
};

Distances cosine_distances(std::span<const float> vectors, size_t width) {
  const size_t n = vectors.size() / width;
  Distances distances(n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j) {
      const float* const a = vectors.data() + i * width;
      const float product = std::inner_product(a, a + width, vectors.data() + j * width, 0.0F);
      distances.at(i, j) = std::clamp(1.0F - product, 0.0F, 2.0F);
    }
  }
  return distances;
}

// The merges of n vectors in the order in which they are found; a cluster keeps the number of its later part.
std::vector<Merge> nearest_neighbour_chains(Distances& distances, size_t n) {
  std::vector<size_t> size(n, 1), chain;
  std::vector<Merge> merges;
  while (merges.size() + 1 < n) {
    if (chain.empty())
      chain.push_back(static_cast<size_t>(std::ranges::find_if(size, [](size_t s) { return s > 0; }) - size.begin()));
    size_t x = 0, y = 0;
    double nearest = 0;
    for (bool grows = true; grows;) {
      x = chain.back();
      const bool has_before = chain.size() > 1;
      y = has_before ? chain[chain.size() - 2] : x;  // preferred among equals, or chains would not end
      nearest = has_before ? distances.at(x, y) : std::numeric_limits<double>::infinity();
      for (size_t i = 0; i < n; ++i) {
        if (size[i] == 0 || i == x || !(distances.at(x, i) < nearest)) continue;
        nearest = distances.at(x, i);
        y = i;
      }
      grows = !has_before || y != chain[chain.size() - 2];
      if (grows) chain.push_back(y);
    }
    chain.resize(chain.size() - 2);
    if (x > y) std::swap(x, y);
    const auto of_x = static_cast<double>(size[x]), of_y = static_cast<double>(size[y]);
    merges.push_back({x, y, nearest});
    for (size_t i = 0; i < n; ++i) {
      if (size[i] == 0 || i == x || i == y) continue;
      const auto of_i = static_cast<double>(size[i]);
      const double share = 1 / (of_x + of_y + of_i), to_x = distances.at(i, x), to_y = distances.at(i, y);
      distances.at(i, y) = std::sqrt((of_i + of_x) * share * to_x * to_x + (of_i + of_y) * share * to_y * to_y -
                                     of_i * share * nearest * nearest);
    }
    size[y] += size[x];
    size[x] = 0;
  }
  return merges;
}

// The merges as a tree, by ascending distance.
std::vector<Merge> tree_of(std::vector<Merge> merges) {
  std::ranges::stable_sort(merges, {}, &Merge::distance);
  const size_t n = merges.size() + 1;
  std::vector<size_t> parent(2 * n - 1);
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto root = [&parent](size_t i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
  };
  for (size_t k = 0; k < merges.size(); ++k) {
    const size_t a = root(merges[k].a), b = root(merges[k].b);
    parent[a] = parent[b] = n + k;
    merges[k] = {std::min(a, b), std::max(a, b), merges[k].distance};
  }
  return merges;
}

// The cluster of each vector: at most `most` clusters, numbered from the root on, the left side first.
std::vector<size_t> clusters_of(const std::vector<Merge>& tree, size_t most) {
  const size_t n = tree.size() + 1;
  // Merges of equal distance are all made, or all left out.
  size_t made = n - most;
  while (made < tree.size() && tree[made].distance <= tree[made - 1].distance) ++made;
  std::vector<size_t> cluster(n);
  std::vector<std::pair<size_t, bool>> open{{2 * n - 2, false}};  // nodes, and whether they are inside a cluster
  size_t count = 0;
  while (!open.empty()) {
    auto [node, is_inside] = open.back();
    open.pop_back();
    const bool begins = !is_inside && (node < n || node - n < made);
    if (begins) ++count;
    if (node < n) {
      cluster[node] = count - 1;
      continue;
    }
    // The last is the next: merges before single vectors.
    for (const bool is_single : {true, false}) {
      for (const size_t part : {tree[node - n].b, tree[node - n].a}) {
        if ((part < n) == is_single) open.emplace_back(part, is_inside || begins);
      }
    }
  }
  return cluster;
}

void average_clusters(size_t width, size_t most, std::vector<float>& vectors) {
  const size_t n = vectors.size() / width;
  Distances distances = cosine_distances(vectors, width);
  const std::vector<size_t> cluster = clusters_of(tree_of(nearest_neighbour_chains(distances, n)), most);
  const size_t clusters = std::ranges::max(cluster) + 1;
  std::vector<float> sums(clusters * width);
  std::vector<size_t> sizes(clusters);
  for (size_t i = 0; i < n; ++i) {
    ++sizes[cluster[i]];
    for (size_t c = 0; c < width; ++c) sums[cluster[i] * width + c] += vectors[i * width + c];
  }
  for (size_t i = 0; i < sums.size(); ++i) sums[i] /= static_cast<float>(sizes[i / width]);
  vectors = std::move(sums);
}

void mean_of_rows(const SentenceModules& modules, std::span<const int32_t> ids, float* out) {
  const int64_t columns = modules.table_width;
  std::vector<double> sum(static_cast<size_t>(columns));
  for (const int32_t id : ids) {
    for (int64_t c = 0; c < columns; ++c) sum[c] += modules.table[id * columns + c];
  }
  for (int64_t c = 0; c < columns; ++c) out[c] = static_cast<float>(sum[c] / static_cast<double>(ids.size()));
}

}  // namespace

void spread_rows(std::span<const int64_t> offsets, int64_t count, int64_t columns, float* rows) {
  for (int64_t i = std::ssize(offsets) - 1; i-- > 0 && count <= i;) {
    if (offsets[i] == offsets[i + 1]) {
      std::fill_n(rows + i * columns, columns, 0.0F);
    } else {
      --count;
      std::copy_n(rows + count * columns, columns, rows + i * columns);
    }
  }
}

void look_up(const SentenceModules& modules, const Tokens& tokens, float* out) {
  const int64_t columns = modules.table_width;
  for (size_t i = 1; i < tokens.offsets.size(); ++i, out += columns) {
    const auto ids = tokens.ids.subspan(tokens.offsets[i - 1], tokens.offsets[i] - tokens.offsets[i - 1]);
    std::fill_n(out, columns, 0.0F);
    if (modules.body == SentenceModules::Body::kSparseStatic) {
      for (const int32_t id : ids) out[id] = modules.table[id];
    } else if (!ids.empty()) {
      mean_of_rows(modules, ids, out);
    }
  }
}

void pool_tokens(const TokenPooling& pooling, int64_t dimensions, std::vector<float>& vectors) {
  const auto width = static_cast<size_t>(dimensions);
  const size_t all = vectors.size() / width, kept = std::min(all, static_cast<size_t>(pooling.protected_tokens));
  const size_t rest = all - kept;
  const auto most = std::max<size_t>(1, static_cast<size_t>(std::floor(static_cast<double>(rest) / pooling.factor)));
  if (most < rest) {
    const auto begin = vectors.begin() + static_cast<std::ptrdiff_t>(kept * width);
    std::vector<float> clustered(begin, vectors.end());
    average_clusters(width, most, clustered);
    vectors.erase(begin, vectors.end());
    vectors.insert(vectors.end(), clustered.begin(), clustered.end());
  }
  for (size_t i = 0; pooling.normalizes && i < vectors.size(); i += width) normalize(vectors.data() + i, dimensions);
}

SparseVector sparse_of_tokens(std::span<const int32_t> ids, const float* weights, int64_t stride,
                              std::span<const int32_t> left_out, int64_t max_active) {
  std::map<int32_t, float> largest;
  for (const int32_t id : ids) {
    const float weight = *weights;
    weights += stride;
    if (weight > 0 && std::ranges::find(left_out, id) == left_out.end()) largest[id] = std::max(largest[id], weight);
  }
  std::vector<int32_t> indices;
  std::vector<float> values;
  for (const auto& [id, weight] : largest) {
    indices.push_back(id);
    values.push_back(weight);
  }
  SparseVector kept = sparse_of(values, max_active);
  for (int32_t& i : kept.indices) i = indices[static_cast<size_t>(i)];
  return kept;
}

}  // namespace rf::engine
