/* SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 ask a training to end after the step at hand. A second one ends the process at
 * once. (Launcher and scheduler may both deliver the same one: within a second it counts as one.) */
#pragma once

/* While it trains, signals only leave a note, in the thread that calls; then they get their usual effect back. Output
 * that nobody reads any more (SIGPIPE), or a file beyond the limit (SIGXFSZ), ends no training. */
void dlrm_signals_catch(void);
void dlrm_signals_release(void);
int dlrm_signals_seen(void); /* the signal's number, or 0 */
const char *dlrm_signal_name(int number); /* "SIGUSR1" */
