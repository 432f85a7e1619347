// Checks every shard of a data directory, or of one part (prepare.h).
#include "rf/data/prepare.h"

#include "manifest.h"
#include "rf/data/read_progress.h"
#include "rf/io/error.h"

namespace rf::data {

VerifyReport verify(const std::string& data_dir, io::Progress& progress) {
  const Manifest manifest = read_manifest(data_dir);
  VerifyReport report;
  ReadProgress line(progress, "verifying", shard_bytes(data_dir, manifest));
  for (const auto& [name, split] : manifest.splits) {
    int64_t documents = 0, tokens = 0;
    const size_t damaged = report.damaged.size();
    for (const std::string& file : split.shards) {
      try {
        const ShardReader shard(data_dir + "/" + file);
        shard.verify();
        check_vocabulary(manifest, shard);
        documents += shard.documents();
        tokens += shard.tokens();
        report.bytes += shard.bytes();
        ++report.shards;
      } catch (const Error& error) {
        report.damaged.push_back({file, error.what()});
      }
      line.update(report.bytes);
    }
    report.documents += documents;
    report.tokens += tokens;
    if (report.damaged.size() > damaged) continue;
    const auto check = [&](const std::string& file, const auto& rule) {
      try {
        rule();
      } catch (const Error& error) {
        report.damaged.push_back({file, error.what()});
      }
    };
    check(kManifestName, [&] { check_counts(data_dir + ": " + name, split, documents, tokens); });
    check(split.token_counts, [&] {
      const std::string path = data_dir + "/" + split.token_counts;
      check_token_counts(path, read_token_counts(path, manifest.vocab_size), split.tokens);
    });
  }
  progress.finish();
  return report;
}

}  // namespace rf::data
