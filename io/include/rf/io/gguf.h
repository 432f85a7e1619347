// GGUF files, the format of llama.cpp, versions 2 and 3. The file begins with:
//
//   "GGUF" | u32 version | u64 tensors | u64 pairs | pairs: key, u32 type, value | tensors: name, u32 rank,
//   u64 [rank] shape, u32 type, u64 offset | padding to general.alignment | data
//
// Everything is little-endian, a string is a u64 length and its bytes. The file is mapped; lengths and counts are
// checked against the rest of the file before use. Data are read on demand, of the types in gguf_blocks.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rf::io {

// Whether a file exists that begins as one, whatever its name.
bool is_gguf_file(const std::string& path);

struct GgufTensor {
  std::string name;
  std::vector<uint64_t> shape;  // the fastest dimension first
  uint32_t type = 0;            // of ggml; 0 is F32
  uint64_t offset = 0;          // in bytes, from the start of the data
  uint32_t part = 0;            // of a split model: the file that has the tensor
};

class GgufFile {
 public:
  // Opens the other parts too if the file is the first of several (llama.cpp's gguf-split: NAME-00001-of-00003.gguf).
  // Throws Error with the path, the rule and the offending value: another version, a big-endian file, a length that
  // leaves the file, a key or a tensor's name that occurs twice, tensors that overlap, arrays in arrays deeper than 4,
  // a part that is not the first or does not belong to it.
  explicit GgufFile(const std::string& path);
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& path() const { return path_; }
  std::vector<std::string> paths() const;  // of all parts
  uint32_t version() const;
  // An object: numbers, booleans, strings, and arrays of at most 4096 numbers; other arrays become {"count": n}. Bytes
  // of strings that are not UTF-8 are escaped.
  const nlohmann::json& metadata() const;  // of the first part
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(const std::string& name) const;  // nullptr when absent
  // The array of strings, integers, reals or bytes of a key; empty if the key is absent. Throws Error for another
  // value.
  std::vector<std::string> strings(const std::string& key) const;
  std::vector<int64_t> integers(const std::string& key) const;
  std::vector<float> reals(const std::string& key) const;
  std::string array_bytes(const std::string& key) const;

  // Throws Error, naming the tensor and its type, unless the type is supported, rows are whole blocks, and the data lie
  // within the file.
  void check(const GgufTensor& tensor) const;
  // Elements begin .. begin + count - 1 of a checked tensor; both must be multiples of its row.
  void read(const GgufTensor& tensor, uint64_t begin, uint64_t count, float* to) const;
  // All elements of a tensor, with its check.
  std::vector<float> numbers(const GgufTensor& tensor) const;
  // The tensor's bytes; their pages can be released.
  std::span<const std::byte> bytes(const GgufTensor& tensor) const;

 private:
  struct Part;
  void open_parts();
  void add_part(Part& part, uint64_t number);
  void take_tensors(Part& part);
  static void check_overlaps(const Part& part);
  const std::string& path_of(const GgufTensor& tensor) const;
  template <typename Visit>
  void visit_array(const std::string& key, const char* elements, const Visit& visit) const;

  std::string path_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<GgufTensor> tensors_;  // of all parts
};

// Whether llama.cpp treats a token with this text as an end of text, regardless of the file's keys and types.
bool is_gguf_end_text(std::string_view token);

// The ids for which llama_vocab_is_eog of llama.cpp is true (src/llama-vocab.cpp, as of November 2026): the ids of the
// keys eos, eot, eom, fim_pad, fim_rep and fim_sep, in that order, and tokens with certain texts. Throws Error if a
// key's id is not a token.
std::vector<int32_t> gguf_end_tokens(const GgufFile& file);

}  // namespace rf::io
