// Packs the words into a double array, and checks one from disk.
#define XXH_INLINE_ALL
#include "segmenter/dictionary_image.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace rf::text {
namespace {

constexpr char kMagic[8] = {'R', 'F', 'D', 'I', 'C', 'T', '\r', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kByteOrder = 0x01020304;
constexpr size_t kCodesOffset = sizeof(ImageHeader) + DictionaryImage::kPages * sizeof(uint16_t);

constexpr size_t nodes_offset(uint64_t code_pages) {
  return (kCodesOffset + code_pages * 256 * sizeof(uint32_t) + 15) / 16 * 16;
}

// Numbers from 1 on for the characters of the words; frequent ones get small numbers, which packs well.
std::vector<uint32_t> number_characters(const DictionaryWords& words) {
  std::vector<uint32_t> uses(0x110000);
  for (const DictionaryWords::Edge& edge : words.edges()) ++uses[edge.character];
  std::vector<char32_t> used;
  for (char32_t c = 0; c < uses.size(); ++c) {
    if (uses[c] > 0) used.push_back(c);
  }
  std::stable_sort(used.begin(), used.end(), [&uses](char32_t a, char32_t b) { return uses[a] > uses[b]; });
  std::vector<uint32_t> numbers(0x110000);
  for (uint32_t i = 0; i < used.size(); ++i) numbers[used[i]] = i + 1;
  return numbers;
}

struct CodeTable {
  std::vector<uint16_t> pages;
  std::vector<uint32_t> codes;
};

// Equal pages are stored once.
CodeTable make_code_table(const std::vector<uint32_t>& numbers) {
  CodeTable table;
  for (size_t page = 0; page < DictionaryImage::kPages; ++page) {
    std::array<uint32_t, 256> codes;
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = numbers[256 * page + i] | run_flags(static_cast<char32_t>(256 * page + i));
    }
    size_t at = 0;
    while (at < table.codes.size() && !std::equal(codes.begin(), codes.end(), table.codes.begin() + at)) at += 256;
    if (at == table.codes.size()) table.codes.insert(table.codes.end(), codes.begin(), codes.end());
    table.pages.push_back(static_cast<uint16_t>(at / 256));
  }
  return table;
}

struct Child {
  uint32_t code;
  DictionaryWords::Node node;
};

// The children of each node, by code.
class Children {
 public:
  Children(const DictionaryWords& words, const std::vector<uint32_t>& numbers)
      : begins_(words.nodes() + size_t{1}), children_(words.edges().size()) {
    for (const auto& edge : words.edges()) ++begins_[edge.parent + size_t{1}];
    std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
    std::vector<size_t> next = begins_;
    for (const auto& edge : words.edges()) children_[next[edge.parent]++] = {numbers[edge.character], edge.child};
    for (size_t node = 0; node < words.nodes(); ++node) {
      std::sort(children_.begin() + begins_[node], children_.begin() + begins_[node + 1],
                [](const Child& a, const Child& b) { return a.code < b.code; });
    }
  }
  std::span<const Child> of(DictionaryWords::Node node) const {
    return std::span(children_).subspan(begins_[node], begins_[node + size_t{1}] - begins_[node]);
  }

 private:
  std::vector<size_t> begins_;
  std::vector<Child> children_;
};

// Finds places for the children of one node after another. Sets of similar size are placed in sequence into the gaps
// that larger sets left, so the search for each size goes through the array once.
class Packer {
 public:
  explicit Packer(uint32_t alphabet) : alphabet_(alphabet) { reserve(0); }

  std::vector<DictionaryImage::Node> pack(const DictionaryWords& words, const Children& children) {
    struct Placed {
      DictionaryWords::Node node;
      uint32_t index;
    };
    std::vector<Placed> queue = {{words.root(), 0}};
    nodes_[0] = {0, 0, kNoWord};
    for (size_t i = 0; i < queue.size(); ++i) {
      const Placed parent = queue[i];
      const std::span<const Child> set = children.of(parent.node);
      if (set.empty()) continue;
      const uint32_t base = find_base(set);
      nodes_[parent.index].base = base;
      for (const Child& child : set) {
        nodes_[base + child.code] = {0, parent.index, words.weight(child.node)};
        queue.push_back({child.node, base + child.code});
      }
    }
    return std::move(nodes_);
  }

 private:
  bool is_free(size_t index) const { return nodes_[index].parent == DictionaryImage::kFree; }

  // Any base plus any code is inside the array, because look-up does not check.
  void reserve(size_t base) {
    if (base + alphabet_ < nodes_.size()) return;
    nodes_.resize(base + 2 * size_t{alphabet_} + 2, {0, DictionaryImage::kFree, kNoWord});
  }

  uint32_t find_base(std::span<const Child> set) {
    uint32_t& base = bases_[std::min(set.size(), bases_.size()) - 1];
    for (;; ++base) {
      reserve(base);
      const auto fits = [this, &base](const Child& child) { return is_free(base + child.code); };
      if (std::all_of(set.begin(), set.end(), fits)) return base;
    }
  }

  uint32_t alphabet_;
  std::vector<DictionaryImage::Node> nodes_;
  // Where the search for a set of each size continues; the last is for all larger ones.
  std::vector<uint32_t> bases_ = std::vector<uint32_t>(64, 1);
};

Hash128 content_hash(std::span<const std::byte> image) { return hash_bytes(image.subspan(offsetof(ImageHeader, key))); }

// Look-up does not check, so every page must exist, and every base plus every code must be a node. The hash does not
// prove that, because anybody can compute it.
bool stays_inside(const DictionaryImage& image) {
  const std::span pages(image.pages, DictionaryImage::kPages);
  const std::span codes(image.codes, image.header->code_pages * 256);
  const std::span nodes(image.nodes, image.header->nodes);
  if (std::ranges::any_of(pages, [&](uint16_t page) { return page >= image.header->code_pages; })) return false;
  uint64_t highest_code = 0, highest_base = 0;
  for (const uint32_t code : codes) highest_code = std::max<uint64_t>(highest_code, code & kCodeMask);
  for (const DictionaryImage::Node& node : nodes) highest_base = std::max<uint64_t>(highest_base, node.base);
  return !codes.empty() && highest_base + highest_code < nodes.size();
}

template <typename T>
void copy_into(std::string& bytes, size_t offset, const std::vector<T>& values) {
  std::memcpy(bytes.data() + offset, values.data(), values.size() * sizeof(T));
}

}  // namespace

Hash128 hash_bytes(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

std::string build_image(const DictionaryWords& words, const Hash128& key) {
  const std::vector<uint32_t> numbers = number_characters(words);
  const CodeTable table = make_code_table(numbers);
  const uint32_t alphabet = *std::max_element(numbers.begin(), numbers.end());
  const std::vector<DictionaryImage::Node> nodes = Packer(alphabet).pack(words, Children(words, numbers));

  ImageHeader header{};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  header.version = kVersion;
  header.byte_order = kByteOrder;
  header.key = key;
  header.code_pages = table.codes.size() / 256;
  header.nodes = nodes.size();
  for (DictionaryWords::Node node = 0; node < words.nodes(); ++node)
    header.words += words.frequency(node) > 0 ? 1U : 0U;
  header.total = words.total();
  header.single = words.single();
  const size_t nodes_at = nodes_offset(header.code_pages);
  header.size = nodes_at + nodes.size() * sizeof(DictionaryImage::Node);

  std::string bytes(header.size, '\0');
  copy_into(bytes, sizeof header, table.pages);
  copy_into(bytes, kCodesOffset, table.codes);
  copy_into(bytes, nodes_at, nodes);
  std::memcpy(bytes.data(), &header, sizeof header);
  header.content_hash = content_hash(std::as_bytes(std::span(bytes)));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

bool open_image(std::span<const std::byte> bytes, const Hash128& key, DictionaryImage& image) {
  if (bytes.size() < sizeof(ImageHeader)) return false;
  const auto* header = reinterpret_cast<const ImageHeader*>(bytes.data());
  const bool ours = std::equal(std::begin(kMagic), std::end(kMagic), header->magic) && header->version == kVersion &&
                    header->byte_order == kByteOrder && header->key == key && header->size == bytes.size();
  if (!ours || header->content_hash != content_hash(bytes)) return false;
  if (header->code_pages > DictionaryImage::kPages || header->nodes > DictionaryImage::kFree) return false;
  const size_t nodes_at = nodes_offset(header->code_pages);
  if (header->nodes == 0 || header->size != nodes_at + header->nodes * sizeof(DictionaryImage::Node)) return false;
  image.header = header;
  image.pages = reinterpret_cast<const uint16_t*>(bytes.data() + sizeof(ImageHeader));
  image.codes = reinterpret_cast<const uint32_t*>(bytes.data() + kCodesOffset);
  image.nodes = reinterpret_cast<const DictionaryImage::Node*>(bytes.data() + nodes_at);
  return stays_inside(image);
}

}  // namespace rf::text
