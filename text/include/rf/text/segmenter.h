// Chinese text to words, as jieba does it without its hidden Markov model (spec R-TOK-02): the text is cut into runs of
// Han characters, ASCII letters and digits and + # & . _ % -; in a run the words are those of the most probable
// path through the dictionary words that begin at each character; outside runs every character is a word, save that
// \r\n is one.
//
// The result is that of `rjieba.cut(text, False)`. Python's `jieba.cut(text, HMM=False)` differs in what is Han: only
// U+4E00..U+9FD5, where rjieba and this have U+3400..4DBF, 4E00..9FFF, F900..FAFF, 20000..2A6DF, 2A700..2EBEF and
// 2F800..2FA1F. jieba's runs end at the others. That shows when a (user) dictionary has words with such a character,
// and where two ways to cut a run are equally probable but for the rounding of sums, which go over the whole run.
// jieba's own dictionary has no such word. Not here: the hidden Markov model, "cut all" and search modes, parts of
// speech.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rf::text {

struct DictionaryImage;
struct SegmentationBuffers;

// Where built dictionaries are kept: $XDG_CACHE_HOME/roformer, else ~/.cache/roformer.
struct DictionaryCache {
  std::string directory = default_directory();  // empty: nothing is kept
  static std::string default_directory();       // empty when neither variable is set
};

// The words and their weights, immutable and shared between threads.
class Dictionary {
 public:
  // Reads jieba's dict.txt (lines "word frequency [tag]") and user dictionaries in jieba's format (lines "word
  // [frequency] [tag]"; without a frequency the word gets the one that jieba's suggest_freq gives; frequency 0 removes
  // the word). A later line replaces an earlier one of the same word; both count in the total, as in jieba.
  //
  // What is built is kept in the cache under a hash of the files' content and memory-mapped by whoever needs it next. A
  // damaged cache file is built anew; when the cache cannot be written the dictionary is held in memory. Nothing is
  // ever deleted from the cache; whoever likes may do so at any time.
  // Throws Error: a file cannot be read, a line is not in the format (names file and line), no word has a frequency.
  static std::shared_ptr<const Dictionary> load(const std::string& path,
                                                const std::vector<std::string>& user_paths = {},
                                                const DictionaryCache& cache = {});
  ~Dictionary();

  int64_t size() const;   // words with a frequency above 0
  int64_t total() const;  // the sum of all frequencies read
  bool mapped() const;    // whether it lies in a cache file
  // Hash (XXH3, 32 hexadecimal digits) of the files' content, user dictionaries taken as one: what a model records.
  const std::string& hash() const { return hash_; }
  // Writes the files that it was read from into a model directory, user dictionaries as one: dict.txt, which is left
  // out when it is the set-up's, and user_dict.txt. Throws Error when a file has changed since it was read.
  void save(const std::string& model_dir) const;
  const DictionaryImage& image() const { return *image_; }

 private:
  Dictionary();
  class Storage;
  std::unique_ptr<const Storage> storage_;
  const DictionaryImage* image_ = nullptr;
  std::vector<std::string> paths_;  // the main one first
  std::string hash_;
};

// The files of a model directory that go before the set-up's dictionary.
inline constexpr const char kDictionaryFile[] = "dict.txt", kUserDictionaryFile[] = "user_dict.txt";

// The dictionary to use: `given` when not empty, else dict.txt in `model_dir` (when that is not empty), else
// share/roformer/dict.txt beside the running program or one directory above it, where the set-up puts jieba's. Throws
// Error that names every place looked at.
std::string find_dictionary(const std::string& model_dir, const std::string& given);

// Holds buffers: one object a thread.
class Segmenter {
 public:
  explicit Segmenter(std::shared_ptr<const Dictionary> dictionary);
  ~Segmenter();
  Segmenter(Segmenter&&) noexcept;
  Segmenter& operator=(Segmenter&&) noexcept;

  // Cuts a text given as code points (any values; those above U+10FFFF and surrogates are words of their own). `ends`
  // is cleared and then gets the end of each word, in code points from the text's front: word k is [ends[k - 1],
  // ends[k]), the first begins at 0, and nothing of the text is left out. jieba does no normalisation: lower-case first
  // if the words are to be looked up in lower case.
  //
  // Time is linear in the text. The most probable path of a run depends on all of it, to the last bit of the
  // floating-point sums, so a run is never worked on in pieces: 5 bytes are held for each character of the longest run,
  // and nothing for the rest of the text.
  void cut(std::u32string_view text, std::vector<uint32_t>& ends);

  // Whether a text may be parted behind this character and the parts be cut each by itself, with the same words: it is
  // in no run, and a line feed behind it would not belong to it.
  static bool may_part_after(char32_t c);

 private:
  std::shared_ptr<const Dictionary> dictionary_;
  std::unique_ptr<SegmentationBuffers> buffers_;
};

}  // namespace rf::text
