//! A program whose memory is limited in continuous integration: it reads the lines of a file,
//! splits each into words, and prints the number of words.
//
//     cc -g -o rows rows.c
//     ./rows input.txt
//     heaptide check -- ./rows input.txt
//
// All lines share one buffer for their words. With -DREGRESSION each word is copied: `heaptide
// check` then fails, and reports the function `split`.

#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t split(char *line, char **words, size_t most)
{
    size_t count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(line, " \n", &rest); word && count < most;
         word = strtok_r(NULL, " \n", &rest)) {
#ifdef REGRESSION
        word = strdup(word);
#endif
        words[count++] = word;
    }
    return count;
}

int main(int count, char **arguments)
{
    char *line = NULL, *words[100];
    size_t room = 0, all = 0;
    FILE *input = count == 2 ? fopen(arguments[1], "r") : NULL;
    if (!input) {
        fprintf(stderr, "usage: rows FILE\n");
        return 2;
    }
    while (getline(&line, &room, input) > 0)
        all += split(line, words, 100);
    free(line);
    fclose(input);
    printf("%zu words\n", all);
    return 0;
}
