// The form of a dictionary in use and on disk: one block of memory without pointers.
//
//   ImageHeader | pages: uint16[kPages] | codes: uint32[256 * code_pages] | zeros to a multiple of 16 | nodes:
//   Node[nodes]
//
// A character's code is codes[256 * pages[c >> 8] + (c & 255)]: the flags of segmentation.h and its number in the
// dictionary's alphabet, 0 if no word contains it. The words are a double array over these numbers: the child of node i
// by code k is node j = nodes[i].base + k if nodes[j].parent is i. Node 0 is the root. All numbers have the machine's
// byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "segmenter/segmentation.h"

namespace rf::text {

struct Hash128 {
  uint64_t low, high;
  bool operator==(const Hash128&) const = default;
};
Hash128 hash_bytes(std::span<const std::byte> bytes);

struct ImageHeader {
  char magic[8];
  uint32_t version;
  uint32_t byte_order;   // kByteOrder
  Hash128 content_hash;  // of everything after it
  Hash128 key;           // hash of the sources
  uint64_t size;         // of the whole, bytes
  uint64_t code_pages, nodes;
  uint64_t words, total;
  double single;  // weight of a character that does not begin a word

  static constexpr char kMagic[8] = {'R', 'F', 'D', 'I', 'C', 'T', '\r', '\n'};
  static constexpr uint32_t kVersion = 1, kByteOrder = 0x01020304;
};

struct DictionaryImage {
  struct Node {
    uint32_t base;    // 0: no children
    uint32_t parent;  // kFree: not in use
    double weight;    // of the word that ends here, or kNoWord
  };
  static constexpr uint32_t kFree = ~uint32_t{0};
  static constexpr size_t kPages = 0x110000 / 256;
  static constexpr size_t kCodesOffset = sizeof(ImageHeader) + kPages * sizeof(uint16_t);
  static constexpr size_t nodes_offset(uint64_t code_pages) {
    return (kCodesOffset + code_pages * 256 * sizeof(uint32_t) + 15) / 16 * 16;
  }

  const ImageHeader* header;
  const uint16_t* pages;
  const uint32_t* codes;
  const Node* nodes;

  // For segment().
  uint32_t code(char32_t c) const { return c < 0x110000 ? codes[size_t{256} * pages[c >> 8] + (c & 255)] : 0; }
  static uint32_t root() { return 0; }
  bool step(uint32_t& node, uint32_t code) const {
    const uint32_t next = nodes[node].base + code;
    if (nodes[next].parent != node) return false;
    node = next;
    return true;
  }
  double weight(uint32_t node) const { return nodes[node].weight; }
  double single() const { return header->single; }
};

inline Hash128 content_hash(std::span<const std::byte> image) {
  return hash_bytes(image.subspan(offsetof(ImageHeader, key)));
}

// A dictionary file; user dictionaries follow the main one.
struct DictionarySource {
  std::string path, text;
};
// The image as bytes. `key` is written into it.
std::string build_image(const std::vector<DictionarySource>& sources, const Hash128& key);

// The image in `bytes` (aligned to 16), which must outlive it. Returns false unless they are a complete, undamaged
// image of this version with that key.
bool open_image(std::span<const std::byte> bytes, const Hash128& key, DictionaryImage& image);

}  // namespace rf::text
