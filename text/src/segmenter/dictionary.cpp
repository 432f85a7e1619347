// Sources of dictionaries: the files, where to find them, and the cache of built dictionaries. The segmenter is
// segmentation.h over the image of a dictionary.
#define XXH_INLINE_ALL
#include <dlfcn.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/utf8.h"
#include "rf/text/segmenter.h"
#include "rf/text/word_boundaries.h"
#include "segmenter/dictionary_image.h"
#include "segmenter/segmentation.h"

namespace rf::text {
namespace {

namespace fs = std::filesystem;

using Source = DictionarySource;

std::vector<Source> read_sources(const std::string& path, const std::vector<std::string>& user_paths) {
  std::vector<Source> sources = {{path, io::read_file(path)}};
  for (const std::string& user : user_paths) sources.push_back({user, io::read_file(user)});
  return sources;
}

// The user dictionaries as one file.
std::string joined_user_text(const std::vector<Source>& sources) {
  std::string joined;
  for (size_t i = 1; i < sources.size(); ++i) {
    joined += sources[i].text;
    if (!joined.empty() && joined.back() != '\n') joined += '\n';
  }
  return joined;
}

std::string hash_of_texts(const std::string& text, const std::string& user_text) {
  const Hash128 hashes[] = {hash_bytes(std::as_bytes(std::span(text))),
                            hash_bytes(std::as_bytes(std::span(user_text)))};
  const Hash128 hash = hash_bytes(std::as_bytes(std::span(hashes)));
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

// Where scripts/setup.sh installs jieba's: in the directory of the running program, or one directory above it. If
// another program runs, such as Python, the directories of the library with this code.
std::vector<fs::path> installed_places() {
  std::vector<fs::path> places;
  const auto add_places = [&places](const fs::path& file) {
    const fs::path installed = fs::path("share") / "roformer" / kDictionaryFile;
    for (const fs::path& folder : {file.parent_path(), file.parent_path().parent_path()}) {
      const fs::path place = folder / installed;
      if (std::ranges::find(places, place) == places.end()) places.push_back(place);
    }
  };
  std::error_code error;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", error); !error) add_places(program);
  static const char kHere = 0;
  Dl_info library = {};
  if (dladdr(&kHere, &library) == 0 || library.dli_fname == nullptr) return places;
  if (const fs::path file = fs::canonical(library.dli_fname, error); !error) add_places(file);
  return places;
}

// The hash of the contents, in their order.
Hash128 key_of_sources(const std::vector<Source>& sources) {
  std::vector<Hash128> hashes;
  for (const Source& source : sources) hashes.push_back(hash_bytes(std::as_bytes(std::span(source.text))));
  return hash_bytes(std::as_bytes(std::span(hashes)));
}

// False if the cache file cannot be written; the dictionary is then used without it.
bool keep(const std::string& cache_file, const std::string& image) {
  try {
    io::write_file(cache_file, image);
  } catch (const Error&) {
    return false;
  }
  return true;
}

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

}  // namespace

Hash128 hash_bytes(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

bool open_image(std::span<const std::byte> bytes, const Hash128& key, DictionaryImage& image) {
  if (bytes.size() < sizeof(ImageHeader)) return false;
  const auto* header = reinterpret_cast<const ImageHeader*>(bytes.data());
  const bool ours = std::ranges::equal(ImageHeader::kMagic, header->magic) &&
                    header->version == ImageHeader::kVersion && header->byte_order == ImageHeader::kByteOrder &&
                    header->key == key && header->size == bytes.size();
  if (!ours || header->content_hash != content_hash(bytes)) return false;
  if (header->code_pages > DictionaryImage::kPages || header->nodes > DictionaryImage::kFree) return false;
  const size_t nodes_at = DictionaryImage::nodes_offset(header->code_pages);
  if (header->nodes == 0 || header->size != nodes_at + header->nodes * sizeof(DictionaryImage::Node)) return false;
  image.header = header;
  image.pages = reinterpret_cast<const uint16_t*>(bytes.data() + sizeof(ImageHeader));
  image.codes = reinterpret_cast<const uint32_t*>(bytes.data() + DictionaryImage::kCodesOffset);
  image.nodes = reinterpret_cast<const DictionaryImage::Node*>(bytes.data() + nodes_at);
  return stays_inside(image);
}

// The storage of the image: a mapped file, or memory.
class Dictionary::Storage {
 public:
  // Whether an undamaged cache file exists.
  bool map(const std::string& cache_file, const Hash128& key) {
    std::error_code error;
    if (!fs::is_regular_file(cache_file, error)) return false;
    try {
      file_.emplace(cache_file);
    } catch (const Error&) {
      return false;
    }
    if (open_image(file_->bytes(), key, image)) return true;
    file_.reset();
    return false;
  }
  void hold(std::string bytes, const Hash128& key) {
    memory_ = std::move(bytes);
    open_image(std::as_bytes(std::span(memory_)), key, image);
  }
  bool mapped() const { return file_.has_value(); }

  DictionaryImage image{};

 private:
  std::optional<io::MappedFile> file_;
  std::string memory_;
};

Dictionary::Dictionary() = default;
Dictionary::~Dictionary() = default;

std::string DictionaryCache::default_directory() {
  const auto variable = [](const char* name) { return std::string(std::getenv(name) ? std::getenv(name) : ""); };
  // The base directory specification requires ignoring relative paths.
  if (const fs::path cache = variable("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "roformer";
  if (const fs::path home = variable("HOME"); home.is_absolute()) return home / ".cache" / "roformer";
  return {};
}

std::shared_ptr<const Dictionary> Dictionary::load(const std::string& path, const std::vector<std::string>& user_paths,
                                                   const DictionaryCache& cache) {
  std::vector<Source> sources = read_sources(path, user_paths);
  const Hash128 key = key_of_sources(sources);
  const std::string cache_file =
      cache.directory.empty()
          ? std::string()
          : (fs::path(cache.directory) / fmt::format("dictionary-{:016x}{:016x}.bin", key.high, key.low)).string();
  auto storage = std::make_unique<Storage>();
  if (cache_file.empty() || !storage->map(cache_file, key)) {
    std::string image = build_image(sources, key);
    const bool kept = !cache_file.empty() && keep(cache_file, image) && storage->map(cache_file, key);
    if (!kept) storage->hold(std::move(image), key);
  }
  std::shared_ptr<Dictionary> dictionary(new Dictionary);
  dictionary->image_ = &storage->image;
  dictionary->storage_ = std::move(storage);
  std::string user_text = joined_user_text(sources);
  dictionary->hash_ = hash_of_texts(sources.front().text, user_text);
  if (sources.size() > 1) dictionary->user_text_ = std::move(user_text);
  dictionary->path_ = std::move(sources.front().path);
  dictionary->text_ = std::move(sources.front().text);
  return dictionary;
}

void Dictionary::save(const std::string& model_dir) const {
  const fs::path main = fs::path(model_dir) / kDictionaryFile, user = fs::path(model_dir) / kUserDictionaryFile;
  const bool is_installed = std::ranges::any_of(installed_places(), [&](const fs::path& place) {
    std::error_code error;
    return fs::equivalent(place, path_, error) && io::read_file(place.string()) == text_;
  });
  if (!is_installed || fs::exists(main)) io::write_file(main.string(), text_);
  if (user_text_) io::write_file(user.string(), *user_text_);
}

int64_t Dictionary::size() const { return static_cast<int64_t>(image_->header->words); }

int64_t Dictionary::total() const { return static_cast<int64_t>(image_->header->total); }

bool Dictionary::mapped() const { return storage_->mapped(); }

std::string find_dictionary(const std::string& model_dir, const std::string& given) {
  if (!given.empty()) return given;  // its errors are reported when it is read
  std::vector<fs::path> places;
  if (!model_dir.empty()) places.push_back(fs::path(model_dir) / kDictionaryFile);
  for (const fs::path& place : installed_places()) places.push_back(place);
  std::string looked_at;
  for (const fs::path& place : places) {
    if (io::has_file(place)) return place.string();
    looked_at += fmt::format("{}{}", looked_at.empty() ? "" : ", ", place.string());
  }
  fail<MissingFileError>(
      "dictionary",
      "a segmenting tokenizer needs jieba's dict.txt (give it with --dict, or run scripts/setup.sh, which puts it "
      "beside the program), got none at {}",
      looked_at);
}

void Segmenter::cut(std::u32string_view text, std::vector<uint32_t>& ends) {
  segment(dictionary_->image(), text, buffers_, ends);
}

bool Segmenter::may_part_after(char32_t c) { return run_flags(c) == 0 && c != U'\r'; }

void WordBoundaries::mark(std::string_view text, size_t first, Encoding& tokens) {
  codes_.clear();
  while (!text.empty()) codes_.push_back(take_utf8(text).code);
  segmenter_.cut(codes_, ends_);
  auto before = ends_.end();  // the word of the token before
  for (size_t i = first; i < tokens.size(); ++i) {
    const auto word = std::upper_bound(ends_.begin(), ends_.end(), static_cast<uint32_t>(tokens.char_begin[i]));
    tokens.starts_word[i] = i == first || word != before;
    before = word;
  }
}

}  // namespace rf::text
