/* Ids and keys of split-binary files: of an input whose hotness is fixed, rows of so many; where it varies, bags that lie one behind the
 * other, with a file of where each begins. Bags of shuffled rows are read by runs of rows, and kept as rows with room for the longest. */
#pragma once
#include "data/split_columns.h"

/* Input j's ids of a batch, of all its samples or the rank's own. DLRM_E_INPUT: an id outside of its table, or offsets that are none,
 * with file and row. */
dlrm_status dlrm_split_ids_read(dlrm_split_reader *r, int j, dlrm_batch *b) DLRM_MUST_USE;
/* Of a row of ids, in the file or, where shuffled bags vary, in memory. */
int64_t dlrm_split_ids_bytes(const dlrm_feature_spec *files, int j, bool shuffled);
