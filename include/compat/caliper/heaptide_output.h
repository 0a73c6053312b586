//! Caliper's configuration and output: variables, services, channels, reports at exit.
//
// Not for programs; cali.h includes it. Only the services that concern memory have an effect:
// alloc, sysalloc, allocstats, trace, event, aggregate and timestamp correspond to functions of the
// recorder; `report` and `recorder` write. The output that Caliper's variables request is written
// by heaptide_write().

#ifndef HEAPTIDE_COMPAT_CALIPER_OUTPUT_H
#define HEAPTIDE_COMPAT_CALIPER_OUTPUT_H

#ifdef __cplusplus
extern "C" {
#endif

// ---- Settings

struct heaptide_cali_setting_ {
    struct heaptide_cali_setting_ *next;
    char *key, *value;
    int is_preset;  // the environment takes precedence
};

struct heaptide_cali_channel_ {
    struct heaptide_cali_channel_ *next;
    struct heaptide_cali_setting_ *settings;
    int is_active, reads_environment, is_deleted;
};

HEAPTIDE_CALI_SHARED_ struct heaptide_cali_setting_ *heaptide_cali_settings_;
HEAPTIDE_CALI_SHARED_ struct heaptide_cali_channel_ *heaptide_cali_channels_;
HEAPTIDE_CALI_SHARED_ int heaptide_cali_ignores_environment_;
HEAPTIDE_CALI_SHARED_ int heaptide_cali_exits_;   // the handler is registered
HEAPTIDE_CALI_SHARED_ pid_t heaptide_cali_pid_;    // by this process
HEAPTIDE_CALI_SHARED_ int heaptide_cali_cleared_;  // flushed with CALI_FLUSH_CLEAR_BUFFERS
HEAPTIDE_CALI_SHARED_ int heaptide_cali_traces_;   // a trace was requested from the recorder

// Concatenates strings, while recording is paused. NULL if out of memory.
static __attribute__((unused)) char *heaptide_cali_text_(const char *a, const char *b,
                                                         const char *c, const char *d)
{
    size_t bytes = strlen(a) + strlen(b) + strlen(c) + strlen(d) + 1;
    char *text = (char *)malloc(bytes);
    if (text)
        snprintf(text, bytes, "%s%s%s%s", a, b, c, d);
    return text;
}

static __attribute__((unused)) void heaptide_cali_add_(struct heaptide_cali_setting_ **list,
                                                       const char *key, const char *value,
                                                       int is_preset)
{
    struct heaptide_cali_setting_ *made;
    heaptide_pause(0);
    made = (struct heaptide_cali_setting_ *)malloc(sizeof *made);
    if (made) {
        made->key = heaptide_cali_text_(key, "", "", "");
        made->value = heaptide_cali_text_(value, "", "", "");
        made->is_preset = is_preset;
        made->next = *list;
        *list = made;
    }
    heaptide_resume(0);
}

static __attribute__((unused)) const char *
heaptide_cali_find_(const struct heaptide_cali_setting_ *list, const char *key, int is_preset)
{
    for (; list; list = list->next)
        if (list->key && list->value && list->is_preset == is_preset && !strcmp(list->key, key))
            return list->value;
    return NULL;
}

// Returns the value of a variable, from the first of these that has it: the channel, the program's
// settings, the environment, presets. Empty if none has it.
static __attribute__((unused)) const char *
heaptide_cali_value_of_(const struct heaptide_cali_channel_ *channel, const char *key)
{
    const char *value = channel ? heaptide_cali_find_(channel->settings, key, 0) : NULL;
    if (!value && !channel)
        value = heaptide_cali_find_(heaptide_cali_settings_, key, 0);
    if (!value && (channel ? channel->reads_environment : !heaptide_cali_ignores_environment_))
        value = getenv(key);
    if (!value && !channel)
        value = heaptide_cali_find_(heaptide_cali_settings_, key, 1);
    return value ? value : "";
}

// Returns whether a list, separated by commas or spaces, contains a word.
static __attribute__((unused)) int heaptide_cali_lists_(const char *list, const char *word)
{
    size_t length = strlen(word);
    while (*list) {
        size_t own = strcspn(list, ",;: \t\n");
        if (own == length && !strncmp(list, word, own))
            return 1;
        list += own + (list[own] != 0);
    }
    return 0;
}

static __attribute__((unused)) int heaptide_cali_is_true_(const char *value)
{
    return !strcmp(value, "true") || !strcmp(value, "TRUE") || !strcmp(value, "1")
           || !strcmp(value, "yes") || !strcmp(value, "on");
}

// ---- Output

// Strict C does not declare it.
#ifdef O_CLOEXEC
#define HEAPTIDE_CALI_CLOEXEC_ O_CLOEXEC
#else
#define HEAPTIDE_CALI_CLOEXEC_ 0
#endif

// Writes the arguments of the table `caliper`: the services of a list, and the options of a
// channel. Writes an empty text if none of the services is known.
static __attribute__((unused)) void
heaptide_cali_arguments_(const struct heaptide_cali_channel_ *channel, const char *services,
                         char *text, size_t size)
{
    static const char *const names[] = {"alloc", "sysalloc", "allocstats", "event", "timer",
                                        "timestamp", "pthread", "mpi"};
    static const char *const options[][2] = {
        {"CALI_ALLOC_RECORD_ACTIVE_MEM", "active"},
        {"CALI_ALLOC_RECORD_HIGHWATERMARK", "highwatermark"},
        {"CALI_ALLOCSTATS_RECORD_HIGHWATERMARK", "highwatermark"},
        {"CALI_ALLOC_RESOLVE_ADDRESSES", "resolve"},
    };
    const char *tracks = heaptide_cali_value_of_(channel, "CALI_ALLOC_TRACK_ALLOCATIONS");
    int is_tracking = !*tracks || heaptide_cali_is_true_(tracks);
    size_t i, used = 0;
    *text = 0;
    for (i = 0; i < sizeof names / sizeof *names; i++)
        if (heaptide_cali_lists_(services, names[i]) && (i || is_tracking))
            used += (size_t)snprintf(text + used, size - used, ",%s", names[i]);
    for (i = 0; i < sizeof options / sizeof *options; i++)
        if (heaptide_cali_is_true_(heaptide_cali_value_of_(channel, options[i][0])))
            used += (size_t)snprintf(text + used, size - used, ",%s", options[i][1]);
    if (used)
        memmove(text, text + 1, used);
}

// Returns whether a text begins with a lower-case word, ignoring the text's case.
static __attribute__((unused)) int heaptide_cali_begins_(const char *text, const char *word)
{
    for (; *word; text++, word++)
        if ((*text >= 'A' && *text <= 'Z' ? *text + 'a' - 'A' : *text) != *word)
            return 0;
    return 1;
}

// Finds the keyword of a clause outside of quotes. NULL if there is none.
static __attribute__((unused)) const char *heaptide_cali_clause_(const char *query,
                                                                 const char *keyword)
{
    size_t length = strlen(keyword);
    int quoted = 0;
    char before = ' ';
    for (; *query; before = *query++) {
        quoted ^= *query == '"';
        if (!quoted && strchr(" \t\n", before) && heaptide_cali_begins_(query, keyword)
            && query[length] && strchr(" \t\n", query[length]))
            return query;
    }
    return NULL;
}

// Converts a query to the command's syntax. Like in Caliper, tables and trees show all digits, and
// the query reads records of the services that `arguments` lists. Recording must be paused. NULL if
// out of memory.
static __attribute__((unused)) char *heaptide_cali_query_(const char *query,
                                                          const char *arguments)
{
    const char *format = heaptide_cali_clause_(query, "format"), *insert = "", *at, *closed;
    const int has_table = !*arguments || heaptide_cali_clause_(query, "from") != NULL;
    size_t bytes = strlen(query) + strlen(arguments) + 128, head;
    char *text = (char *)malloc(bytes);
    if (!text)
        return NULL;
    at = query + strlen(query);
    if (!format) {
        insert = " FORMAT table(exact)";
    } else {
        format += strlen("format");
        format += strspn(format, " \t\n");
        if (heaptide_cali_begins_(format, "table") || heaptide_cali_begins_(format, "tree")) {
            at = format + strcspn(format, "( \t\n");
            closed = *at == '(' ? strchr(at, ')') : NULL;
            insert = !closed ? "(exact)" : closed == at + 1 ? "exact" : ",exact";
            at = closed ? closed : at;
        }
    }
    head = (size_t)(at - query);
    snprintf(text, bytes, "query:%.*s%s%s%s%s%s", (int)head, query, insert, at,
             has_table ? "" : " FROM caliper(", has_table ? "" : arguments, has_table ? "" : ")");
    return text;
}

// Returns the rank that the launcher of an MPI program has set, by the variables that the recorder
// reads; "" without one.
static __attribute__((unused)) const char *heaptide_cali_rank_(void)
{
    static const char *const ranks[] = {"HEAPTIDE_RANK", "OMPI_COMM_WORLD_RANK",
                                        "MV2_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                        "PALS_RANKID", "ALPS_APP_PE", "JSM_NAMESPACE_RANK",
                                        "FLUX_TASK_RANK", "SLURM_PROCID"};
    size_t i;
    for (i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *value = getenv(ranks[i]);
        if (value && *value && !value[strspn(value, "0123456789")])
            return value;
    }
    return "";
}

// Returns the name of a file with the rank instead of each `%mpi.rank%`. NULL if out of memory.
static __attribute__((unused)) char *heaptide_cali_expanded_(const char *name)
{
    static const char pattern[] = "%mpi.rank%";
    const size_t length = sizeof pattern - 1;
    const char *at;
    char *text = heaptide_cali_text_(name, "", "", ""), *end = text;
    while (text && (at = strstr(name, pattern)) != NULL) {
        // At most as long as the pattern.
        end += sprintf(end, "%.*s%.10s", (int)(at - name), name, heaptide_cali_rank_());
        name = at + length;
    }
    if (text)
        memmove(end, name, strlen(name) + 1);
    return text;
}

// Writes the result of a query to a file, or to stdout or stderr.
static __attribute__((unused)) int heaptide_cali_write_(const char *query, const char *name,
                                                        int is_appended, const char *arguments)
{
    int done = 0, file;
    char *format, *target;
    heaptide_pause(0);
    format = heaptide_cali_query_(query, arguments);
    target = format ? heaptide_cali_expanded_(name) : NULL;
    heaptide_resume(0);
    if (!target) {
        heaptide_pause(0);
        free(format);
        heaptide_resume(0);
        return 0;
    }
    if (is_appended && strcmp(target, "stdout") && strcmp(target, "stderr")) {
        file = open(target, O_WRONLY | O_CREAT | O_APPEND | HEAPTIDE_CALI_CLOEXEC_, 0666);
        if (file >= 0) {
            done = heaptide_write_to(file, format);
            close(file);
        }
    } else {
        done = heaptide_write(target, format);
    }
    if (!done)
        fprintf(stderr, "heaptide: %s: Caliper's report could not be written\n", target);
    heaptide_pause(0);
    free(format);
    free(target);
    heaptide_resume(0);
    return done;
}

// Returns the default name of a `.cali` file: time and process, like Caliper's.
static __attribute__((unused)) void heaptide_cali_file_(char *name, size_t size)
{
    time_t now = time(NULL);
    const struct tm *parts = localtime(&now);
    char stamp[32] = "";
    if (parts)
        strftime(stamp, sizeof stamp, "%y%m%d-%H%M%S", parts);
    snprintf(name, size, "%s_%ld.cali", stamp, (long)getpid());
}

// Writes the output of a channel's services.
static __attribute__((unused)) void
heaptide_cali_flush_(const struct heaptide_cali_channel_ *channel)
{
    const char *services = heaptide_cali_value_of_(channel, "CALI_SERVICES_ENABLE");
    char arguments[256];
    heaptide_cali_arguments_(channel, services, arguments, sizeof arguments);
    if (heaptide_cali_lists_(services, "report")) {
        const char *query = heaptide_cali_value_of_(channel, "CALI_REPORT_CONFIG");
        const char *target = heaptide_cali_value_of_(channel, "CALI_REPORT_FILENAME");
        const char *append = heaptide_cali_value_of_(channel, "CALI_REPORT_APPEND");
        heaptide_cali_write_(*query ? query : "SELECT path,mem.alloc,count() "
                                              "GROUP BY path,mem.alloc WHERE mem.alloc",
                             *target ? target : "stdout", heaptide_cali_is_true_(append),
                             arguments);
    }
    if (heaptide_cali_lists_(services, "recorder")) {
        const char *directory = heaptide_cali_value_of_(channel, "CALI_RECORDER_DIRECTORY");
        const char *name = heaptide_cali_value_of_(channel, "CALI_RECORDER_FILENAME");
        char own[64], *target;
        heaptide_cali_file_(own, sizeof own);
        heaptide_pause(0);
        if (!strcmp(name, "stdout") || !strcmp(name, "stderr"))
            directory = "";
        target = heaptide_cali_text_(directory, *directory ? "/" : "", *name ? name : own, "");
        heaptide_resume(0);
        if (target)
            heaptide_cali_write_("SELECT * FORMAT cali", target, 0, arguments);
        heaptide_pause(0);
        free(target);
        heaptide_resume(0);
    }
}

// ---- Configurations: `runtime-report(mem.highwatermark,output=stdout),event-trace`

// One configuration, or the options that apply to all.
struct heaptide_cali_config_ {
    char name[64], output[1024], format[32];
    int highwatermark, stats, pages, is_appended;
};

// Extracts the pieces of a configuration string: from `*text` to the next comma outside of
// parentheses.
static __attribute__((unused)) size_t heaptide_cali_piece_(const char *text)
{
    const char *start = text;
    int depth = 0;
    for (; *text && (depth || *text != ','); text++)
        depth += *text == '(' ? 1 : *text == ')' ? -1 : 0;
    return (size_t)(text - start);
}

static __attribute__((unused)) void heaptide_cali_copy_(char *to, size_t size, const char *text,
                                                        size_t length)
{
    while (length && strchr(" \t\n\"", *text))
        text++, length--;
    while (length && strchr(" \t\n\"", text[length - 1]))
        length--;
    if (length >= size)
        length = size - 1;
    memcpy(to, text, length);
    to[length] = 0;
}

static __attribute__((unused)) int heaptide_cali_is_config_(const char *name)
{
    return !strcmp(name, "runtime-report") || !strcmp(name, "runtime-profile")
           || !strcmp(name, "hatchet-region-profile") || !strcmp(name, "event-trace");
}

// Stores `NAME=VALUE` or `NAME` in a configuration. 0: unknown option.
static __attribute__((unused)) int heaptide_cali_option_(struct heaptide_cali_config_ *config,
                                                         const char *text, size_t length)
{
    // Options of Caliper that do not concern memory, or that are always on here.
    static const char *const others[] = {"calc.inclusive",  "time.exclusive", "region.count",
                                         "region.stats",    "profile.mpi",    "print.metadata",
                                         "max_column_width", "node.order",    "use.mpi",
                                         "time.inclusive",  "trace.mpi",      "order_as_visited",
                                         "aggregate_across_ranks", "include_regions",
                                         "exclude_regions", "level",          "region.level"};
    char name[64], value[1024];
    const char *sign = (const char *)memchr(text, '=', length);
    size_t own = sign ? (size_t)(sign - text) : length, i;
    int is_on;
    heaptide_cali_copy_(name, sizeof name, text, own);
    heaptide_cali_copy_(value, sizeof value, sign ? sign + 1 : "true",
                        sign ? length - own - 1 : 4);
    is_on = heaptide_cali_is_true_(value);
    if (!strcmp(name, "mem.highwatermark"))
        config->highwatermark = is_on;
    else if (!strcmp(name, "alloc.stats"))
        config->stats = is_on;
    else if (!strcmp(name, "mem.pages"))
        config->pages = is_on;
    else if (!strcmp(name, "output"))
        heaptide_cali_copy_(config->output, sizeof config->output, value, strlen(value));
    else if (!strcmp(name, "output.append"))
        config->is_appended = is_on;
    else if (!strcmp(name, "output.format"))
        heaptide_cali_copy_(config->format, sizeof config->format, value, strlen(value));
    else {
        for (i = 0; i < sizeof others / sizeof *others; i++)
            if (!strcmp(name, others[i]))
                return 1;
        return !*name;
    }
    return 1;
}

// Parses the options in parentheses, or of the whole string. 0, with a message, if one is unknown.
static __attribute__((unused)) int heaptide_cali_options_(struct heaptide_cali_config_ *config,
                                                          const char *text, size_t length,
                                                          char *error, size_t size)
{
    size_t at = 0, own;
    for (; at < length; at += own + 1) {
        own = heaptide_cali_piece_(text + at);
        if (own > length - at)
            own = length - at;
        if (!heaptide_cali_option_(config, text + at, own)) {
            snprintf(error, size, "%s%sunknown option or configuration: %.*s", config->name,
                     *config->name ? ": " : "", (int)own, text + at);
            return 0;
        }
    }
    return 1;
}

// Returns whether the recording has a trace, as set by the variable of `heaptide run`, or else by
// the variables or the configuration that request one.
static __attribute__((unused)) int heaptide_cali_is_traced_(void)
{
    const char *mode = getenv("HEAPTIDE_MODE"), *config = getenv("CALI_CONFIG");
    const char *services = getenv("CALI_SERVICES_ENABLE");
    if (mode && *mode)
        return !strcmp(mode, "trace");
    return heaptide_cali_traces_ || (config && *config)
           || (services && heaptide_cali_lists_(services, "trace"));
}

// Writes the output of a configuration with Caliper's columns, from the trace.
static __attribute__((unused)) void
heaptide_cali_profile_(const struct heaptide_cali_config_ *config)
{
    static const char times[]
        = ",sum(report.t) AS \"Time (E)\",inclusive_sum(report.t) AS \"Time (I)\""
          ",percent_total(report.t) AS \"Time % (E)\""
          ",inclusive_percent_total(report.t) AS \"Time % (I)\"";
    static const char time[] = ",sum(report.t) AS time UNIT sec";
    static const char highwatermark[] = ",max(mhwm) AS \"Mem HWM MB\" UNIT MB";
    static const char stats[]
        = ",max(alloc.region.highwatermark) AS \"Mem HWM\",max(alloc.tally) AS \"Alloc tMax\""
          ",sum(alloc.count) AS \"Alloc count\",avg(avg#alloc.size) AS \"Avg Bytes/alloc\""
          ",max(max#alloc.size) AS \"Max Bytes/alloc\"";
    const int is_report = !strcmp(config->name, "runtime-report");
    const int has_memory = config->stats || config->highwatermark;
    const char *format = *config->format ? config->format : is_report ? "tree" : "cali";
    const char *target = *config->output ? config->output : "region_profile";
    const char *end = strcmp(format, "json") && strcmp(format, "json-split") ? ".cali" : ".json";
    size_t own = strlen(target), length = strlen(end);
    char query[2048], file[1032];
    if (is_report)
        target = *config->output ? target : "stderr";
    else if (strcmp(target, "stdout") && strcmp(target, "stderr")
             && (own < length || strcmp(target + own - length, end))) {
        snprintf(file, sizeof file, "%s%s", target, end);
        target = file;
    }
    snprintf(query, sizeof query,
             "LET report.t=scale(time.duration.ns,1e-9),report.l=leaf(),"
             "mhwm=scale(alloc.region.highwatermark,1e-6) SELECT path%s%s%s%s GROUP BY path%s%s "
             "FORMAT %s",
             is_report ? times : time, config->highwatermark ? highwatermark : "",
             config->stats ? stats : "",
             is_report ? "" : ",min(aggregate.slot) AS \"Node order\"",
             is_report ? "" : ",mpi.rank", is_report ? " WHERE report.l" : "", format);
    heaptide_cali_write_(query, target, config->is_appended || is_report,
                         has_memory ? "event,timer,mpi,allocstats,sysalloc,highwatermark"
                                    : "event,timer,mpi");
}

// Writes the output of a configuration without a trace: memory at the peak of the process.
static __attribute__((unused)) void
heaptide_cali_report_(const struct heaptide_cali_config_ *config)
{
    const int is_report = !strcmp(config->name, "runtime-report");
    const char *target = *config->output ? config->output : is_report ? "stderr" : "stdout";
    const char *format = *config->format ? config->format : is_report ? "tree" : "json-split";
    char query[1024], own[64];
    if (!strcmp(config->name, "event-trace")) {
        heaptide_cali_file_(own, sizeof own);
        heaptide_cali_write_("SELECT * FORMAT cali", *config->output ? config->output : own, 0,
                             "event,timer,pthread,mpi,alloc,sysalloc,active");
        return;
    }
    if (heaptide_cali_is_traced_()) {
        heaptide_cali_profile_(config);
    } else {
        snprintf(query, sizeof query,
                 "LET mhwm=scale(at_peak_bytes,1e-6) SELECT path%s%s GROUP BY path "
                 "WHERE mem.alloc FORMAT %s FROM sites",
                 config->highwatermark ? ",sum(mhwm) AS \"At peak MB\" UNIT MB" : "",
                 config->stats || !config->highwatermark
                     ? ",sum(at_peak_bytes) AS \"At peak\",count() AS \"Alloc count\","
                       "ratio(requested_bytes,count) AS \"Avg Bytes/alloc\","
                       "max(largest_bytes) AS \"Max Bytes/alloc\""
                     : "",
                 format);
        heaptide_cali_write_(query, target, config->is_appended, "");
    }
    if (config->pages) {
        // Pages have 4 KiB.
        snprintf(query, sizeof query,
                 "LET vm=scale(virtual_bytes,0.000244140625),rss=scale(resident_bytes,"
                 "0.000244140625) SELECT max(vm) AS VmSize UNIT pages,max(rss) AS VmRSS UNIT pages "
                 "GROUP BY none FORMAT %s FROM timeline",
                 strcmp(format, "tree") ? format : "table");
        heaptide_cali_write_(query, target, 1, "");
    }
}

// Parses a configuration string, and writes its output if `is_final`. If it contains an unknown
// name, writes nothing and returns 0, with a message of at most `size` bytes.
static __attribute__((unused)) int heaptide_cali_configure_(const char *text, int is_final,
                                                            char *error, size_t size)
{
    struct heaptide_cali_config_ common, config;
    size_t own, named;
    const char *at;
    int pass;
    if (is_final && !heaptide_cali_configure_(text, 0, error, size))
        return 0;
    memset(&common, 0, sizeof common);
    *error = 0;
    // Parse the options outside of configurations first, because they apply to all.
    for (pass = 0; pass < 2; pass++) {
        for (at = text; *at; at += own + (at[own] != 0)) {
            own = heaptide_cali_piece_(at);
            named = strcspn(at, "(=,");
            heaptide_cali_copy_(config.name, sizeof config.name, at, named < own ? named : own);
            if (!heaptide_cali_is_config_(config.name)) {
                if (!pass && !heaptide_cali_options_(&common, at, own, error, size))
                    return 0;
                continue;
            }
            if (!pass)
                continue;
            memcpy(common.name, config.name, sizeof common.name);
            config = common;
            if (named < own && at[named] == '('
                && !heaptide_cali_options_(&config, at + named + 1,
                                           own - named - (at[own - 1] == ')' ? 2 : 1), error, size))
                return 0;
            if (is_final)
                heaptide_cali_report_(&config);
        }
    }
    return 1;
}

// ---- The end of the process

static __attribute__((unused)) void heaptide_cali_flush_all_(void)
{
    struct heaptide_cali_channel_ *channel;
    char error[256];
    const char *config = heaptide_cali_value_of_(NULL, "CALI_CONFIG");
    if (!heaptide_recording())
        return;
    heaptide_pause(0);
    heaptide_cali_flush_(NULL);
    for (channel = heaptide_cali_channels_; channel; channel = channel->next)
        if (!channel->is_deleted)
            heaptide_cali_flush_(channel);
    if (*config && !heaptide_cali_configure_(config, 1, error, sizeof error))
        fprintf(stderr, "heaptide: CALI_CONFIG: %s\n", error);
    heaptide_resume(0);
}

// A forked child must not write: it would replace its parent's reports.
static __attribute__((unused)) void heaptide_cali_exit_(void)
{
    const char *at_exit = heaptide_cali_value_of_(NULL, "CALI_CHANNEL_FLUSH_ON_EXIT");
    if (getpid() == heaptide_cali_pid_ && !heaptide_cali_cleared_
        && (!*at_exit || heaptide_cali_is_true_(at_exit)))
        heaptide_cali_flush_all_();
}

// Starts recording, if the program is linked with the recorder and not recorded yet: with a trace
// if the program's configuration or its channels have services that need one.
static __attribute__((unused)) void heaptide_cali_start_(int wants_trace)
{
    if (heaptide_recording())
        return;
    if (!wants_trace)
        heaptide_start();
    else if (heaptide_start_with("HEAPTIDE_MODE=trace HEAPTIDE_BY_CALL=on"))
        heaptide_cali_traces_ = 1;
    else
        heaptide_start(); // an older recorder
}

// Starts recording, if the program is linked with the recorder, and writes reports at exit.
static __attribute__((unused)) void heaptide_cali_init_with_(int wants_trace)
{
    if (!heaptide_loaded() || __atomic_exchange_n(&heaptide_cali_exits_, 1, __ATOMIC_ACQ_REL))
        return;
    heaptide_cali_pid_ = getpid();
    heaptide_cali_start_(wants_trace);
    heaptide_pause(0);
    atexit(heaptide_cali_exit_);
    heaptide_resume(0);
}

static __attribute__((unused)) void heaptide_cali_init_(void)
{
    const char *services = heaptide_cali_value_of_(NULL, "CALI_SERVICES_ENABLE");
    const char *config = heaptide_cali_value_of_(NULL, "CALI_CONFIG");
    heaptide_cali_init_with_(*config || heaptide_cali_lists_(services, "trace"));
}

// Starts early if Caliper's variables request output, before the program calls anything.
static __attribute__((constructor, used)) void heaptide_cali_load_(void)
{
    if (getenv("CALI_SERVICES_ENABLE") || getenv("CALI_CONFIG"))
        heaptide_cali_init_();
}

#ifdef __cplusplus
}
#endif

#endif
