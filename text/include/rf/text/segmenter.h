// Splits Chinese text into words like jieba without its hidden Markov model (spec R-TOK-02). The text is divided into
// runs of Han characters, ASCII letters and digits and + # & . _ % -. In a run, the words form the most probable path
// through the dictionary words that begin at each character. Outside runs every character is a word, except that \r\n
// is one word.
//
// The result is that of `rjieba.cut(text, False)`. Python's `jieba.cut(text, HMM=False)` differs in its range of Han
// characters: only U+4E00..U+9FD5, whereas rjieba and this library use U+3400..4DBF, 4E00..9FFF, F900..FAFF,
// 20000..2A6DF, 2A700..2EBEF and 2F800..2FA1F. jieba's runs end at the others. Results differ if a (user) dictionary
// has words with such a character (jieba's dictionary does not), and if the probabilities of two segmentations of a run
// differ only by the rounding of sums, which cover the whole run. Not implemented: the hidden Markov model, "cut all"
// and search modes, parts of speech.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rf::text {

struct DictionaryImage;

struct SegmentationBuffers {
  std::vector<uint32_t> codes;   // of the run's characters, flags included
  std::vector<uint8_t> lengths;  // of the best word that begins at each character
};

// The directory of built dictionaries: $XDG_CACHE_HOME/roformer, else ~/.cache/roformer.
struct DictionaryCache {
  std::string directory = default_directory();  // empty: no cache
  static std::string default_directory();       // empty if neither variable is set
};

// The words and their weights, immutable and shared between threads.
class Dictionary {
 public:
  // Reads jieba's dict.txt (lines "word frequency [tag]") and user dictionaries in jieba's format (lines "word
  // [frequency] [tag]"; without a frequency the word gets the one that jieba's suggest_freq gives; frequency 0 removes
  // the word). A later line replaces an earlier line of the same word; both count in the total, as in jieba.
  //
  // The built dictionary is stored in the cache under a hash of the files' content and memory-mapped by later calls. A
  // damaged cache file is built again; if the cache cannot be written, the dictionary is kept in memory. Files are
  // never deleted from the cache by this program; they may be deleted at any time. Throws Error if a file cannot be
  // read, a line does not have the format (names file and line), or no word has a frequency.
  static std::shared_ptr<const Dictionary> load(const std::string& path,
                                                const std::vector<std::string>& user_paths = {},
                                                const DictionaryCache& cache = {});
  ~Dictionary();

  int64_t size() const;   // words with a frequency above 0
  int64_t total() const;  // the sum of all frequencies read
  bool mapped() const;    // whether it is a mapped cache file
  // Hash (XXH3, 32 hexadecimal digits) of the files' content, with user dictionaries as one file. Models record it.
  const std::string& hash() const { return hash_; }
  // Writes the contents of its source files, as read, to a model directory: dict.txt, unless it is the installed one,
  // and user_dict.txt with all user dictionaries. Later changes of the source files do not matter.
  void save(const std::string& model_dir) const;
  const DictionaryImage& image() const { return *image_; }

 private:
  Dictionary();
  class Storage;
  std::unique_ptr<const Storage> storage_;
  const DictionaryImage* image_ = nullptr;
  std::string path_, text_;               // of the main one
  std::optional<std::string> user_text_;  // of the user dictionaries, if there are any
  std::string hash_;
};

// The dictionary files of a model directory, which take precedence over the installed dictionary.
inline constexpr const char kDictionaryFile[] = "dict.txt", kUserDictionaryFile[] = "user_dict.txt";

// The dictionary to use: `given` if not empty, else dict.txt in `model_dir` (if that is not empty), else
// share/roformer/dict.txt in the directory of the running program or one directory above it, where scripts/setup.sh
// installs jieba's, else the same relative to the library that contains this code. Throws MissingFileError with the
// names of all files that were tried.
std::string find_dictionary(const std::string& model_dir, const std::string& given);

// Holds buffers: use one object per thread.
class Segmenter {
 public:
  explicit Segmenter(std::shared_ptr<const Dictionary> dictionary) : dictionary_(std::move(dictionary)) {}
  // Cuts a text given as code points (any values; each code point above U+10FFFF and each surrogate is a word). `ends`
  // is cleared and then receives the end of each word, in code points from the text's front: word k is [ends[k - 1],
  // ends[k]), the first begins at 0, and the words cover the text. jieba does not normalise: convert the text to lower
  // case first for a look-up in lower case.
  //
  // Time is linear in the text. The most probable path of a run depends on all of it, to the last bit of the
  // floating-point sums, so a run is never processed in pieces: memory is 5 bytes per character of the longest run.
  void cut(std::u32string_view text, std::vector<uint32_t>& ends);

  // Whether a text may be divided after this character and segmented in parts, with the same words: the character is
  // outside of runs, and a line feed after it would not belong to it.
  static bool may_part_after(char32_t c);

 private:
  std::shared_ptr<const Dictionary> dictionary_;
  SegmentationBuffers buffers_;
};

}  // namespace rf::text
