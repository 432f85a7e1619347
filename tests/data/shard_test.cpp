// Shards against bytes put together by hand from the layout in shard.h, and damaged in every way.
#define XXH_INLINE_ALL
#include "rf/data/shard.h"

#include <xxhash.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "fixtures.h"

namespace rf::data {
namespace {

const std::string kHash = "0123456789abcdef0123456789abcdef";

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Sets the checksum of a file's bytes right.
std::string signed_bytes(std::string bytes) {
  const std::string covered = bytes.substr(128) + bytes.substr(0, 120);
  const uint64_t sum = XXH3_64bits(covered.data(), covered.size());
  std::memcpy(bytes.data() + 120, &sum, sizeof(sum));
  return bytes;
}

// Two documents, {1, 2, 999} and {7}; words start at tokens 0, 2 and 3.
std::string small_shard() {
  std::string bytes = "RFSHARD1";
  for (const uint32_t number : {1, 2}) append(bytes, number);
  for (const uint64_t count : {4, 2, 1000}) append(bytes, count);
  bytes += kHash;
  bytes.resize(128);
  for (const int id : {1, 2, 999, 7}) append(bytes, static_cast<uint16_t>(id));
  bytes.resize(192);
  bytes += char(0b1101);
  bytes.resize(256);
  for (const uint64_t offset : {0, 3, 4}) append(bytes, offset);
  return signed_bytes(bytes);
}

void write_small(const std::string& path) {
  ShardWriter writer(path, 1000, kHash);
  add_document(writer, {1, 2, 999}, {1, 0, 1});
  add_document(writer, {}, {});
  add_document(writer, {7}, {1});
  EXPECT_EQ(writer.tokens(), 4);
  writer.finish();
}

TestDocument all_tokens(const ShardReader& reader) {
  const auto count = static_cast<size_t>(reader.tokens());
  TestDocument all{std::vector<int32_t>(count), std::vector<uint8_t>(count)};
  reader.copy(0, all.ids, all.starts_word);
  return all;
}

// Opens and reads everything; the message of the error, if any.
std::string read_all(const std::string& path) {
  try {
    const ShardReader reader(path);
    reader.verify();
    int64_t sum = 0;
    for (int64_t d = 0; d <= reader.documents(); ++d) sum += reader.document_begin(d);
    for (const int32_t id : all_tokens(reader).ids) {
      if (id < 0 || id >= reader.vocab_size()) ADD_FAILURE() << "token id " << id;
    }
    return sum < 0 ? "negative" : "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Shard, HasTheBytesOfTheFormat) {
  const Directory directory;
  write_small(directory / "a.rfs");
  EXPECT_EQ(read(directory / "a.rfs"), small_shard());
  const ShardReader reader(directory / "a.rfs");
  EXPECT_EQ(std::tuple(reader.tokens(), reader.documents(), reader.vocab_size()), std::tuple(4, 2, 1000));
  EXPECT_EQ(reader.vocab_hash(), kHash);
  EXPECT_EQ(reader.document_begin(1), 3);
  EXPECT_EQ(reader.document_begin(2), 4);
  EXPECT_EQ(all_tokens(reader).ids, (std::vector<int32_t>{1, 2, 999, 7}));
  EXPECT_EQ(all_tokens(reader).starts_word, (std::vector<uint8_t>{1, 0, 1, 1}));
}

TEST(Shard, FourByteTokensAndManyDocuments) {
  const Directory directory;
  const int64_t vocab_size = 70000;
  ShardWriter writer(directory / "a.rfs", vocab_size, kHash);
  TestDocument all;
  for (int d = 0; d < 500; ++d) {
    std::vector<int32_t> ids(static_cast<size_t>(d * 7 % 3001 + 1));
    std::vector<uint8_t> starts(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>((all.ids.size() + i) * 2654435761u % vocab_size);
      starts[i] = ids[i] % 3 == 0;
    }
    add_document(writer, ids, starts);
    all.ids.insert(all.ids.end(), ids.begin(), ids.end());
    all.starts_word.insert(all.starts_word.end(), starts.begin(), starts.end());
  }
  writer.finish();
  const ShardReader reader(directory / "a.rfs");
  EXPECT_EQ(reader.documents(), 500);
  EXPECT_EQ(all_tokens(reader).ids, all.ids);
  EXPECT_EQ(all_tokens(reader).starts_word, all.starts_word);
}

TEST(Shard, EmptyShard) {
  const Directory directory;
  ShardWriter(directory / "a.rfs", 1, kHash).finish();
  const ShardReader reader(directory / "a.rfs");
  EXPECT_EQ(std::tuple(reader.tokens(), reader.documents()), std::tuple(0, 0));
}

// Behind its new end the last page of a mapped file reads as zeros.
TEST(Shard, AFileThatIsCutShortWhileItIsReadIsNoticed) {
  const std::vector<TestDocument> documents = {{{1, 2, 999}, {1, 0, 1}}, {{7, 8}, {1, 1}}, {{300}, {1}}};
  const Directory directory;
  for (size_t cut = 1, size = 2; cut < size; cut += cut < 32 ? 1 : 11) {
    const auto split = make_split(directory, documents, 1000);
    const std::string path = directory / "train-0.rfs";
    size = std::filesystem::file_size(path);
    std::filesystem::resize_file(path, size - cut);
    std::vector<TestDocument> copies;
    std::string message;
    try {
      for (int64_t d = 0; d < split->documents(); ++d) copies.push_back(read_document(*split, d));
    } catch (const Error& error) {
      message = error.what();
    }
    if (cut < 8 && message.empty()) {  // the file's last bytes are zeros, as are those in their place
      for (size_t d = 0; d < documents.size(); ++d) {
        EXPECT_EQ(copies.at(d).ids, documents[d].ids);
        EXPECT_EQ(copies[d].starts_word, documents[d].starts_word);
      }
      continue;
    }
    expect_has(message, path + "] a file must keep its size");
  }
}

// Documents of 1 to 8 tokens in shards of 50.
std::vector<TestDocument> many_documents(int count) {
  std::vector<TestDocument> documents;
  for (int32_t d = 0; d < count; ++d) {
    const auto size = static_cast<size_t>(d * 7 % 8 + 1);
    documents.push_back({std::vector<int32_t>(size, d % 900), std::vector<uint8_t>(size, 1)});
  }
  return documents;
}

TEST(Shard, IsVerifiedWhenItIsFirstRead) {
  const Directory directory;
  make_split(directory, many_documents(100), 1000, 50);
  change_byte(directory / "train-50.rfs", 128);
  const Split split(directory.path(), "train", "");
  const auto read = [&](int64_t document) { read_document(split, document); };
  for (int64_t document = 0; document < 50; ++document) read(document);
  EXPECT_EQ(split.document_tokens(51), 51 * 7 % 8 + 1);  // needs no token
  for (int attempt = 0; attempt < 2; ++attempt) {
    expect_has(error_of([&] { read(51); }), "[shard] " + (directory / "train-50.rfs") + ": the checksum must be");
  }
  change_byte(directory / "train-0.rfs", 128);  // verified, so it is not read again
  read(2);
  expect_has(error_of([&] { Split(directory.path(), "train", "").verify(); }), "train-0.rfs: the checksum");
}

TEST(Shard, ThreadsWaitForTheFirstReader) {
  const Directory directory;
  for (const bool is_damaged : {false, true}) {
    make_split(directory, many_documents(400), 1000, 50);
    if (is_damaged) change_byte(directory / "train-350.rfs", 200);
    const Split split(directory.path(), "train", "");
    std::atomic<int> wrong = 0, refused = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        std::array<int32_t, 8> ids{};
        std::array<uint8_t, 8> starts_word{};
        for (int64_t i = 0; i < split.documents(); ++i) try {
            const int64_t document = (i + t * 50) % split.documents();
            split.copy(document, 0, 1, ids.data(), starts_word.data());
            wrong += ids[0] != document % 900;
          } catch (const Error&) {
            ++refused;
          }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(refused, is_damaged ? 8 * 50 : 0);
  }
}

// Damage that leaves the size right is the checksum's error, also that of an offset, before a token is read: the file
// is named, not only its split.
TEST(Shard, DamageThatIsFoundAtOnceIsTheFilesOwn) {
  const Directory directory;
  const std::string path = directory / "train-50.rfs";
  make_split(directory, many_documents(100), 1000, 50);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  for (const int64_t offset : {int64_t{16}, int64_t{40}, size - 8 * 30 + 6}) {  // tokens, vocabulary, an offset
    make_split(directory, many_documents(100), 1000, 50);
    change_byte(path, offset);
    std::vector<int64_t> lengths(100);
    const auto open = [&] { Split(directory.path(), "train", "").document_lengths(0, lengths); };
    expect_has(error_of(open), path + ": the checksum must be");
  }
}

TEST(Shard, NothingStaysWithoutFinish) {
  const Directory directory;
  { ShardWriter(directory / "a.rfs", 10, kHash).append(std::array{1}, std::array<uint8_t, 1>{1}); }
  EXPECT_TRUE(contents(directory.path()).empty());
}

TEST(Shard, WriterRefusesBadInput) {
  const Directory directory;
  ShardWriter writer(directory / "a.rfs", 10, kHash);
  expect_has(error_of([&] { add_document(writer, {1, 10}, {1, 1}); }), "got 10");
  expect_has(error_of([&] { add_document(writer, {-1}, {1}); }), "got -1");
  expect_has(error_of([&] { add_document(writer, {1, 2}, {1}); }), "2 and 1");
  expect_has(error_of([&] { ShardWriter(directory / "b.rfs", 0, kHash); }), "got 0");
  expect_has(error_of([&] { ShardWriter(directory / "b.rfs", 10, "abc"); }), "abc");
  write(directory / "file", "");
  expect_has(error_of([&] { ShardWriter(directory / "file/b.rfs", 10, kHash); }), "file/b.rfs");
}

TEST(Shard, TruncatedAtEveryLength) {
  const Directory directory;
  const std::string good = small_shard(), path = directory / "a.rfs";
  for (size_t size = 0; size < good.size(); ++size) {
    write(path, good.substr(0, size));
    expect_parts(read_all(path), {path, size > 0 ? "got " + std::to_string(size) : ""});
  }
  write(path, good + "x");
  EXPECT_NE(read_all(path), "");
  expect_has(read_all(directory / "missing.rfs"), "missing.rfs");
}

// A byte changes. Where someone who can compute checksums changes it: an error, or a file that reads well.
TEST(Shard, EveryChangedByteIsFound) {
  const Directory directory;
  const std::string good = small_shard(), path = directory / "a.rfs";
  int refused = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1 << i % 8);
    write(path, bad);
    ASSERT_NE(read_all(path).find(path), std::string::npos) << i;
    for (const char value : {'\x01', '\xff'}) {
      bad[i] = value;
      write(path, signed_bytes(bad));
      refused += read_all(path).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 50);
}

TEST(Shard, OffendingValuesAreNamed) {
  const Directory directory;
  const std::string path = directory / "a.rfs";
  const std::tuple<size_t, uint64_t, size_t, const char*> cases[] = {
      {0, 'X', 1, "RFSHARD1"},
      {8, 7, 4, "got 7"},
      {12, 4, 4, "got 4"},
      {16, uint64_t{1} << 63, 8, "9223372036854775808 tokens"},
      {24, ~uint64_t{0} / 8, 8, "2305843009213693951 documents"},
      {32, 0, 8, "got 0"},
      {128 + 2 * 3, 1000, 2, "got 1000 at token 3"},
      {256, 1, 8, "got 1"},
      {264, 0, 8, "got 0"},
      {272, 5, 8, "got 5"},
  };
  for (const auto& [offset, value, bytes, expected] : cases) {
    std::string bad = small_shard();
    std::memcpy(bad.data() + offset, &value, bytes);
    write(path, signed_bytes(bad));
    expect_parts(read_all(path), {path, expected});
  }
}

}  // namespace
}  // namespace rf::data
