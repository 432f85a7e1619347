/* The last hidden states of one sequence, by the C interface: embed_c MODEL_DIR ID... Each line is one token.
 */
#include <stdio.h>
#include <stdlib.h>

#include "rf/engine.h"

static int report(const char* what) {
  fprintf(stderr, "%s\n", what);
  return 1;
}

int main(int argc, char** argv) {
  rf_engine_options options = {sizeof options};
  rf_engine_info info = {sizeof info};
  rf_engine_tokens tokens = {sizeof tokens};
  rf_engine* engine = NULL;
  const int64_t count = argc - 2;
  const int64_t offsets[2] = {0, count};
  int32_t* ids = NULL;
  float* hidden = NULL;
  int failed = 1;

  if (argc < 3) return report("usage: embed_c MODEL_DIR ID...");
  options.head = RF_ENGINE_NO_HEAD;
  if (rf_engine_open(argv[1], &options, &engine) != RF_OK) return report(rf_engine_last_error());
  if (rf_engine_describe(engine, &info) != RF_OK) {
    report(rf_engine_last_error());
    goto end;
  }

  ids = malloc((size_t)count * sizeof *ids);
  hidden = malloc((size_t)(count * info.hidden_size) * sizeof *hidden);
  if (ids == NULL || hidden == NULL) {
    report("out of memory");
    goto end;
  }
  for (int64_t i = 0; i < count; ++i) ids[i] = (int32_t)strtol(argv[i + 2], NULL, 10);

  tokens.sequences = 1;
  tokens.offsets = offsets;
  tokens.ids = ids;
  if (rf_engine_hidden(engine, &tokens, hidden) != RF_OK) {
    report(rf_engine_last_error());
    goto end;
  }
  for (int64_t i = 0; i < count * info.hidden_size; ++i) {
    printf("%.9g%c", (double)hidden[i], (i + 1) % info.hidden_size == 0 ? '\n' : ' ');
  }
  failed = 0;

end:
  free(hidden);
  free(ids);
  rf_engine_close(engine);
  return failed;
}
