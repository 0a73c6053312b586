//! Labels that are set while as many bytes are live as at the peak belong to the peak: those of
//! the block that made it, and of a block that makes live bytes as high again.
//
// expect label:first at_peak_blocks=1 at_peak_bytes>=10000 at_peak_bytes<=10100
// expect label:last at_peak_blocks=0 at_peak_bytes=0
// expect label:renamed at_peak_blocks=0 at_peak_bytes=0
// expect label:again at_peak_blocks=1 at_peak_bytes>=30000 at_peak_bytes<=30100
// expect label:late at_peak_blocks=0 at_peak_bytes=0
// expect leaf:block at_peak_blocks=2 at_peak_bytes>=40000 at_peak_bytes<=40200
#include "api_guest.h"

int main(void)
{
    char *first = block(10000), *last, *late;
    KNOWN(heaptide_label_block(first, "first") == 1);
    last = block(30000);
    KNOWN(heaptide_label_block(last, "last") == 1);
    KNOWN(heaptide_label_block(last, "renamed") == 1);
    free(last);
    last = block(30000);
    KNOWN(heaptide_label_block(last, "again") == 1);
    free(last);
    late = block(100);
    KNOWN(heaptide_label_block(late, "late") == 1);
    free(late);
    free(first);
    say("peak\n");
    return 0;
}
