// Commands that Python runs. In an installed package `roformer` calls them; here they say what to type.
#include "command.h"

namespace rf::cli {

#define RF_PYTHON_COMMAND(id, name, summary, example, rule)                                  \
  Command id##_command() {                                                                   \
    return {name, summary, example, Command::Seed::kNotUsed,                                 \
            [](CLI::App& app, const Common&) -> std::function<int()> {                       \
              app.allow_extras();                                                            \
              return []() -> int { fail_usage(name, rule ", got the program without it"); }; \
            }};                                                                              \
  }

RF_PYTHON_COMMAND(reproduce, "reproduce", "Replaced by `python -m experiments` in the source tree",
                  "python -m experiments --list",
                  "the papers' experiments must be run in the source tree, by `python -m experiments NAME --scale tiny "
                  "--output DIR --data DIR` (docs/reproduce.md)")
RF_PYTHON_COMMAND(train_embedding, "train-embedding",
                  "Train an encoder for vectors, by sentence-transformers; `python -m roformer_cpp.train_embedding`",
                  "python -m roformer_cpp.train_embedding --help",
                  "embedders must be trained by `python -m roformer_cpp.train_embedding` (docs/embeddings.md)")
RF_PYTHON_COMMAND(plot_attention, "plot-attention",
                  "A page with the attention of a model to a text; `python -m roformer_cpp.plot_attention`",
                  "python -m roformer_cpp.plot_attention --help",
                  "attention must be shown by `python -m roformer_cpp.plot_attention` (docs/graft.md)")

}  // namespace rf::cli
