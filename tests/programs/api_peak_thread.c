//! Labels of the block that made the peak, in a thread, while another one waits.
//
// expect label:first at_peak_blocks=1 at_peak_bytes>=1000000 at_peak_bytes<=1010000
// expect label:last at_peak_blocks=1 at_peak_bytes>=3000000 at_peak_bytes<=3010000
#include "api_guest.h"
#include <pthread.h>

static void *work(void *unused)
{
    char *last = block(3000000);
    KNOWN(heaptide_label_block(last, "last") == 1);
    free(last);
    return unused;
}

int main(void)
{
    char *first = block(1000000);
    pthread_t thread;
    KNOWN(heaptide_label_block(first, "first") == 1);
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    free(first);
    say("peak\n");
    return 0;
}
