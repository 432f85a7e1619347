// Text files, their division into documents and pieces, archives, and which files the inputs mean. Records are compared
// with Python's json, csv and pyarrow in tests/oracles/test_readers.py; here are their errors.
#include "rf/data/reader.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>

#include "fixtures.h"

namespace rf::data {
namespace {

using Texts = std::vector<std::string>;

struct Read {
  Texts documents;
  size_t longest_piece = 0;
  ReadCounts counts;
};

Read read_all(const ReadOptions& options) {
  DocumentReader reader(options);
  Read all;
  bool open = false;
  reader.read([&](const DocumentPart& piece) {
    if (!open) all.documents.emplace_back();
    all.documents.back() += piece.text;
    open = piece.end == DocumentPart::End::kNo;
    all.longest_piece = std::max(all.longest_piece, piece.text.size());
  });
  EXPECT_FALSE(open);
  all.counts = reader.counts();
  return all;
}

// What is read from a file of this name and content.
Read read_file(const std::string& name, const std::string& bytes, ReadOptions options = {}) {
  const Directory directory;
  write(directory / name, bytes);
  options.inputs = {directory / name};
  return read_all(options);
}
Texts documents(const std::string& text, DocumentRule rule) {
  return read_file("a.txt", text, {.document_rule = rule}).documents;
}
std::string file_error(const std::string& name, const std::string& bytes, const ReadOptions& options = {}) {
  return error_of([&] { read_file(name, bytes, options); });
}
std::string gzip(const std::string& bytes) {
  const Directory directory;
  const gzFile file = ::gzopen((directory / "a").c_str(), "wb");
  EXPECT_EQ(::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())), std::ssize(bytes));
  EXPECT_EQ(::gzclose(file), Z_OK);
  return read(directory / "a");
}

std::string zstd(const std::string& bytes) {
  ZSTD_CCtx* const context = ::ZSTD_createCCtx();
  ::ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string packed(::ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(::ZSTD_compress2(context, packed.data(), packed.size(), bytes.data(), bytes.size()));
  ::ZSTD_freeCCtx(context);
  return packed;
}

// A frame of plain blocks that asks for a window of 2^window_log bytes, which zstd itself writes only for long texts.
std::string zstd_of_window(const std::string& bytes, int window_log) {
  constexpr size_t kMaxBlockBytes = size_t{1} << 17;
  std::string packed{"\x28\xB5\x2F\xFD\x00", 5};
  packed += static_cast<char>((window_log - 10) << 3);
  for (size_t begin = 0; begin < bytes.size(); begin += kMaxBlockBytes) {
    const std::string block = bytes.substr(begin, kMaxBlockBytes);
    const size_t is_last = begin + block.size() == bytes.size() ? 1 : 0, header = block.size() << 3 | is_last;
    for (const int shift : {0, 8, 16}) packed += static_cast<char>(header >> shift);
    packed += block;
  }
  return packed;
}

std::string many_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "line " + std::to_string(i) + "\r\n";
  return text;
}

TEST(Reader, RulesFormatsAndNames) {
  for (const char* name : {"file", "blank-line", "line"}) EXPECT_STREQ(document_rule_name(document_rule(name)), name);
  for (const char* name : {"auto", "text", "jsonl", "csv", "tsv", "parquet"}) {
    EXPECT_STREQ(format_name(format(name)), name);
  }
}

TEST(Reader, ByteOrderMarksAndLongBlanks) {
  const std::string mark = "\xEF\xBB\xBF", spaces(1000000, ' ');
  EXPECT_EQ(documents(mark + "a\n" + mark, DocumentRule::kLine), (Texts{"a", mark}));
  EXPECT_TRUE(documents("a\n" + spaces + "\n" + spaces + "b", DocumentRule::kBlankLine) ==
              (Texts{"a", std::string(size_t{1} << 17, ' ') + "b"}));
}

TEST(Reader, LongDocumentsWithoutAPlaceToCut) {
  for (const std::string_view part : {"x", "1 2 "}) {
    std::string text;
    while (text.size() < 10000000) text += part;
    const Read read = read_file("a.txt", text);
    EXPECT_EQ(read.documents, (Texts{text}));
    EXPECT_LE(read.longest_piece, size_t{1} << 22);
  }
}

TEST(Reader, ArchivesOfSeveralParts) {
  const std::string text = many_lines(100000);
  const Texts lines = documents(text, DocumentRule::kLine);
  const std::string half = text.substr(0, text.size() / 3), rest = text.substr(text.size() / 3);
  const std::string skippable("\x5A\x2A\x4D\x18\x03\0\0\0abc", 11);
  const ReadOptions options{.document_rule = DocumentRule::kLine};
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"a.txt.gz", gzip(text)},
           {"a.txt.gz", gzip(half) + gzip("") + gzip(rest)},
           {"a.txt.gz", gzip(text) + std::string(600000, '\0')},
           {"a.txt.zst", zstd(text)},
           {"a.txt.zst", zstd_of_window(text, 31)},
           {"a.txt.zst", skippable + zstd(half) + skippable + zstd("") + zstd(rest)},
           {"a.txt", gzip(text)},  // told by the content
           {"a", zstd(text)},
       }) {
    const Read read = read_file(name, bytes, options);
    EXPECT_TRUE(read.documents == lines) << name << " " << read.documents.size();
    EXPECT_EQ(read.counts.bytes, std::ssize(bytes));
  }
  EXPECT_EQ(read_file("a.txt.gz", gzip("")).documents, Texts{});
}

TEST(Reader, DamagedArchivesAreNamed) {
  const std::string text = many_lines(1000);
  for (const auto& [name, packed] :
       std::vector<std::pair<std::string, std::string>>{{"a.txt.gz", gzip(text)}, {"a.txt.zst", zstd(text)}}) {
    for (const size_t kept : {packed.size() - 1, packed.size() / 2, size_t{5}, size_t{0}}) {
      expect_parts(file_error(name, packed.substr(0, kept)), {name, "got"});
    }
    std::string flipped = packed;
    flipped[packed.size() / 2] = static_cast<char>(flipped[packed.size() / 2] ^ 0x10);
    expect_parts(file_error(name, flipped), {name, "got"});
    expect_parts(file_error(name, packed + "garbage"), {name, "damaged"});
    expect_parts(file_error(name, text), {name, "not compressed"});
    const std::string other = name == "a.txt.gz" ? zstd(text) : gzip(text);
    expect_parts(file_error(name, other), {name, "packed otherwise"});
  }
}

TEST(Reader, FilesOfUnknownNames) {
  EXPECT_EQ(read_file("a.md", "text").documents, (Texts{"text"}));
  const std::string zero("PK\x03\x04\0\0", 6);
  expect_parts(file_error("a.bin", zero), {"a.bin", "zero bytes"});
  EXPECT_EQ(read_file("a.bin", zero, {.format = Format::kText}).documents, (Texts{zero}));
  EXPECT_EQ(read_file("a.txt", zero).documents, (Texts{zero}));
  EXPECT_EQ(read_file("a.bin", "{\"text\":\"b\"}", {.format = Format::kJsonLines}).documents, (Texts{"b"}));
}

TEST(Reader, AFieldOfText) {
  const std::string rule = "--field must name a field of records, got \"body\" for text";
  expect_parts(file_error("a.txt", "b", {.field = "body"}), {rule});
  expect_parts(error_of([] { DocumentReader({.inputs = {"-"}, .field = "body"}); }), {rule});
  EXPECT_EQ(read_file("a.txt", "{\"body\":\"b\"}", {.format = Format::kJsonLines, .field = "body"}).documents,
            (Texts{"b"}));
  const Directory directory;
  write(directory / "a.txt", "a");
  write(directory / "b.jsonl", "{\"body\":\"b\"}");
  EXPECT_EQ(read_all({.inputs = {directory.path()}, .field = "body"}).documents, (Texts{"a", "b"}));
}

TEST(Reader, InputsInTheirOrderOnce) {
  const Directory directory;
  for (const char* name : {"b.txt", "a/z.txt", "a/y.md", "a/k/j.jsonl", "a/x.CSV.gz", "a/config.json", "a/.h.txt"}) {
    write(directory / name, "b");
  }
  const auto list = [](const Texts& inputs, Format format = Format::kAuto) {
    return DocumentReader({.inputs = inputs, .format = format}).files();
  };
  const std::string all = directory.path();
  const std::string h = directory / "a/.h.txt", b = directory / "b.txt", j = directory / "a/k/j.jsonl",
                    x = directory / "a/x.CSV.gz", y = directory / "a/y.md", z = directory / "a/z.txt";
  EXPECT_EQ(list({all}), (Texts{h, j, x, z, b}));
  EXPECT_EQ(list({b, y, all}), (Texts{b, y, h, j, x, z}));
  EXPECT_EQ(list({all, b, directory / "a/../b.txt"}), (Texts{h, j, x, z, b}));
  EXPECT_EQ(list({all}, Format::kJsonLines), (Texts{directory / "a/config.json", j}));
  EXPECT_EQ(list({directory / "*.txt"}), (Texts{b}));
  EXPECT_EQ(list({directory / "*/*.txt"}), (Texts{z}));
  EXPECT_EQ(list({directory / "**/*.[tj]*"}), (Texts{directory / "a/config.json", j, z, b}));
  EXPECT_EQ(list({directory / "a/**"}), (Texts{directory / "a/config.json", j, x, y, z}));
  EXPECT_EQ(list({directory / "?/.*"}), (Texts{h}));
  write(directory / "c[1].txt", "literal");
  EXPECT_EQ(list({directory / "c[1].txt"}), (Texts{directory / "c[1].txt"}));
}

TEST(Reader, BadPathsAreNamed) {
  const Directory directory;
  write(directory / "a.txt", "a");
  write(directory / "unknown/a.md", "a");
  std::filesystem::create_directories(directory / "empty");
  std::filesystem::create_symlink(directory / "nowhere", directory / "dangling.txt");
  const auto list_error = [](const Texts& inputs, Format format = Format::kAuto) {
    return error_of([&] { DocumentReader({.inputs = inputs, .format = format}); });
  };
  for (const std::string name : {"missing.txt", "a.txt/b", "empty", "dangling.txt", "unknown", "*.md", "no/*.txt"}) {
    expect_parts(list_error({directory / name}), {directory / name});
  }
  expect_parts(list_error({directory.path()}), {"dangling.txt"});
  expect_parts(list_error({directory / "unknown"}, Format::kCsv), {"csv"});
  expect_parts(list_error({"/dev/null"}), {"/dev/null"});
  expect_parts(list_error({}), {"none"});
  expect_parts(error_of([&] { DocumentReader({.inputs = {directory / "a.txt"}, .field = ""}); }), {"field"});
  DocumentReader reader({.inputs = {directory / "a.txt"}});
  std::filesystem::remove(directory / "a.txt");
  expect_parts(error_of([&] { reader.read([](const DocumentPart&) {}); }), {directory / "a.txt"});
}

TEST(Reader, PipesAreMeant) {
  const Directory directory;
  write(directory / "a.txt", "a");
  ASSERT_EQ(::mkfifo((directory / "b.txt").c_str(), 0600), 0);
  for (const std::string& input : {directory.path(), directory / "*.txt"}) {
    expect_parts(error_of([&] { DocumentReader({.inputs = {input}}); }), {"pipe", directory / "b.txt"});
  }
}

TEST(Reader, RingsOfLinks) {
  const Directory directory;
  write(directory / "a.txt", "a");
  std::filesystem::create_directory_symlink(directory.path(), directory / "up");
  std::filesystem::create_symlink("itself", directory / "itself");
  EXPECT_EQ(DocumentReader({.inputs = {directory.path()}}).files(), (Texts{directory / "a.txt"}));
  EXPECT_EQ(DocumentReader({.inputs = {directory / "**/*.txt"}}).files(), (Texts{directory / "a.txt"}));
  std::filesystem::create_symlink("itself.txt", directory / "itself.txt");
  expect_parts(error_of([&] { DocumentReader({.inputs = {directory.path()}}); }), {directory / "itself.txt"});
}

// Root may read everything: for as long as one of these lives, it is nobody.
class NotRoot {
 public:
  NotRoot() : was_root_(::geteuid() == 0) { EXPECT_EQ(was_root_ ? ::setresuid(65534, 65534, 0) : 0, 0); }
  ~NotRoot() { EXPECT_EQ(was_root_ ? ::setresuid(0, 0, 0) : 0, 0); }
  NotRoot(const NotRoot&) = delete;
  NotRoot& operator=(const NotRoot&) = delete;

 private:
  bool was_root_;
};

TEST(Reader, Unreadable) {
  const Directory directory;
  std::filesystem::permissions(directory.path(), std::filesystem::perms::all);  // of nobody too
  const NotRoot not_root;
  write(directory / "a.txt", "a");
  write(directory / "b/c.txt", "c");
  std::filesystem::permissions(directory / "b", std::filesystem::perms::none);
  for (const std::string& input : {directory.path(), directory / "b", directory / "*/*.txt"}) {
    expect_parts(error_of([&] { DocumentReader({.inputs = {input}}); }), {directory / "b", "Permission denied"});
  }
  std::filesystem::permissions(directory / "b", std::filesystem::perms::owner_all);
  std::filesystem::permissions(directory / "a.txt", std::filesystem::perms::none);
  expect_parts(error_of([&] { DocumentReader({.inputs = {directory / "a.txt"}}); }), {"a.txt"});
}

TEST(Reader, JsonLines) {
  const std::string lines = "\xEF\xBB\xBF{\"text\": \"a\"}\r\n\n  \n{\"text\": null}\n{\"text\": \" \"}";
  EXPECT_EQ(read_file("a.jsonl", lines).documents, Texts{"a"});
  const auto field = [](const std::string& name) {
    return read_file("a.ndjson", R"({"a": {"b.c": "1", "d": ["2", {"e": "3"}], "~/": "4"}, "f": "x", "f": "5"})",
                     {.field = name})
        .documents;
  };
  EXPECT_EQ(field("/a/b.c"), (Texts{"1"}));
  EXPECT_EQ(field("a.d.0"), (Texts{"2"}));
  EXPECT_EQ(field("/a/d/1/e"), (Texts{"3"}));
  EXPECT_EQ(field("/a/~0~1"), (Texts{"4"}));
  EXPECT_EQ(field("f"), (Texts{"5"}));
}

TEST(Reader, RecordsFollowTheDocumentRule) {
  const std::string lines = "{\"text\": \"a\\nb\\r\\n\\nc\"}\n{\"text\": \"d\"}\n";
  EXPECT_EQ(read_file("a.jsonl", lines).documents, (Texts{"a\nb\r\n\nc", "d"}));
  EXPECT_EQ(read_file("a.jsonl", lines, {.document_rule = DocumentRule::kBlankLine}).documents,
            (Texts{"a\nb", "c", "d"}));
  EXPECT_EQ(read_file("a.jsonl", lines, {.document_rule = DocumentRule::kLine}).documents, (Texts{"a", "b", "c", "d"}));
}

TEST(Reader, BadJsonIsNamedOrCounted) {
  const std::string good = "{\"text\": \"a\"}\n";
  for (const std::string bad : {"[]", "{\"text\": 1}", "{\"text\": \"\x01\"}", "{\"a\": {\"text\": \"a\"}}"}) {
    const std::string bytes = good + bad + "\n" + good;
    expect_parts(file_error("a.jsonl", bytes), {"a.jsonl line 2 must ", "got "});
    const Read read = read_file("a.jsonl", bytes, {.bad_records = BadRecords::kSkip});
    EXPECT_EQ(read.documents, (Texts{"a", "a"})) << bad;
    EXPECT_EQ(read.counts.skipped_records, 1) << bad;
  }
  const std::string deep = "{\"text\": \"a\", \"b\": " + std::string(100000, '[');
  expect_parts(file_error("a.jsonl", deep), {"a.jsonl line 1", "nesting"});
  expect_parts(file_error("a.jsonl", good, {.field = "a..b"}), {"a..b"});
}

TEST(Reader, Tables) {
  EXPECT_EQ(read_file("a.csv", "\xEF\xBB\xBFid,text\r\n1,d\n").documents, Texts{"d"});
  EXPECT_EQ(read_file("a.tsv", "1\tx\r\n2\ty\rz\r\r\n3\t\rw", {.field = "2"}).documents, (Texts{"x", "y\rz\r", "\rw"}));
}

TEST(Reader, BadTablesAreNamedOrCounted) {
  expect_parts(file_error("a.csv", "id,body\n1,a\n"), {"a.csv", "\"text\"", "id, body"});
  expect_parts(file_error("a.csv", "text,text\na,b\n"), {"a.csv", "text, text"});
  expect_parts(file_error("a.csv", "a,b\n", {.field = "3"}), {"a.csv", "column 3", "got 2"});
  const std::string ragged = "id,text\n1,\"a\nb\"\n2\n3,c\n4,d,e\n";
  expect_parts(file_error("a.csv", ragged), {"a.csv line 4", "2 columns", "got 1"});
  EXPECT_EQ(read_file("a.csv", ragged, {.bad_records = BadRecords::kSkip}).counts.skipped_records, 2);
  expect_parts(file_error("a.csv", std::string(12000000, ','), {.field = "1"}), {"a.csv line 1", "at most"});
  const std::string open = "id,text\n1,a\n2,\"b\n3,c\n";
  expect_parts(file_error("a.csv", open), {"a.csv line 3", "quotation marks", "--no-quotes"});
  EXPECT_EQ(read_file("a.csv", open, {.bad_records = BadRecords::kSkip}).counts.skipped_records, 2);
}

// Python's csv in strict mode refuses these, too.
TEST(Reader, QuotationMarksThatSwallowRows) {
  const std::string between = "id,text\n1,\"a\n2,b\n3,\"c\n4,d\n";
  expect_parts(file_error("a.csv", between), {"a.csv line 2", "text after it in line 4", "--no-quotes"});
  expect_parts(file_error("a.csv", "id,text\n1,\"a\"b"), {"a.csv line 2", "text after it (", "--no-quotes"});
  expect_parts(file_error("a.csv", "id,\"text\" \n1,a\n"), {"a.csv line 1", "text after it (", "--no-quotes"});
  EXPECT_EQ(read_file("a.csv", between, {.bad_records = BadRecords::kSkip}).counts.skipped_records, 3);
}

// Lines and records as texts: what tests/cli/test_record_ids.py and test_embed.py do not have.
TEST(Reader, TextsOfLines) {
  const Directory directory;
  const std::string long_line(3 << 20, 'x');  // of many pieces
  const auto texts = [&](const std::string& name, const std::string& bytes) {
    TextReader reader({.inputs = {directory.write(name, bytes)}});
    Texts found;
    reader.read([&](const SourceText& text) {
      EXPECT_EQ(text.line, std::ssize(found) + 1);
      found.emplace_back(text.text);
    });
    EXPECT_EQ(reader.bytes_read(), std::ssize(bytes));
    return found;
  };
  EXPECT_EQ(texts("a.txt", "a\rb\xff\n\n  \n" + long_line + "\nb"), (Texts{"a\rb\xff", "", "  ", long_line, "b"}));
  expect_has(error_of([&] { texts("a.data", std::string("a\n\0b", 4)); }), "zero bytes");
}

TEST(Reader, ParquetThatIsNone) {
  // Also where Arrow was not found: then the message says what to install.
  expect_parts(file_error("a.parquet", "PAR1 and no more"), {"a.parquet"});
}

}  // namespace
}  // namespace rf::data
