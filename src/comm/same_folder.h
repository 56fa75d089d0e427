/* Is a folder that ranks write into the same one on all of them? Hosts may each have one of that name. */
#pragma once
#include "comm/comm.h"

/* Collective. Rank 0 puts a file with a new name there, which the others look for, and removes it. DLRM_E_INPUT names the key, the rank
 * that does not see it or cannot write there, and the folder. */
dlrm_status dlrm_same_folder_check(dlrm_comm *c, const char *key, const char *folder) DLRM_MUST_USE;
