//! The built-in sets of rules.

/// The built-in sets: name and file.
pub const SETS: [(&str, &str); 11] = [
    ("std", include_str!("../../rules/std.rules")),
    ("boost", include_str!("../../rules/boost.rules")),
    ("tbb", include_str!("../../rules/tbb.rules")),
    ("tokio", include_str!("../../rules/tokio.rules")),
    ("rust", include_str!("../../rules/rust.rules")),
    ("qt", include_str!("../../rules/qt.rules")),
    ("cpython", include_str!("../../rules/cpython.rules")),
    ("python", include_str!("../../rules/python.rules")),
    ("regex", include_str!("../../rules/regex.rules")),
    ("cling", include_str!("../../rules/cling.rules")),
    ("mallocprofiler", include_str!("../../rules/mallocprofiler.rules")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{lines, read, with_stacks};
    use crate::model::{Process, Sum};
    use crate::selection::rules::Rules;
    use heaptide_fixtures::ProgramBuilder;

    /// Returns the stacks rewritten by a set, and checks that sums do not change.
    fn rewritten(set: &str, mut process: Process) -> Vec<String> {
        let totals = process.totals;
        process.rewrite(&Rules::built_in(set).expect("a set"));
        assert_eq!(Sum::over(&process.tables.sites).live_bytes, totals.live_bytes);
        lines(&process)
    }

    #[test]
    fn every_set_is_read() {
        for (name, text) in SETS {
            let rules = Rules::parse(text).unwrap_or_else(|error| panic!("{name}:{error}"));
            assert!(!rules.is_empty() && text.starts_with("# "), "{name}");
        }
    }

    /// Names depend on the release of glibc, and on whether its debug information is installed.
    #[test]
    fn starts_of_threads_are_removed() {
        for set in ["std", "tbb", "rust"] {
            for start in ["clone", "__clone", "clone3", "__clone3", "__GI___clone3"] {
                let process = with_stacks(&[&format!("{start};start_thread;work")]);
                assert_eq!(rewritten(set, process), ["work 1"], "{set}");
            }
        }
    }

    const NODE: &str = "std::__detail::_Hash_node<std::pair<unsigned int const, ClusterShapeHitFilter::StripData>, false>";
    const PRODUCE: &str = "ClusterShapeHitFilterESProducer::produce(CkfComponentsRecord const&)";
    const FILTER: &str = "ClusterShapeHitFilter::ClusterShapeHitFilter(TrackerGeometry const*, TrackerTopology const*, \
         std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&)";

    /// Expected results are those of the scripts of the set's authors.
    #[test]
    fn stacks_of_mallocprofiler() {
        let table = "std::_Hashtable<unsigned int, std::pair<unsigned int const, \
            ClusterShapeHitFilter::StripData>, std::allocator<std::pair<unsigned int const, \
            ClusterShapeHitFilter::StripData> >, std::__detail::_Select1st, std::equal_to<unsigned int>, \
            std::hash<unsigned int>, std::__detail::_Mod_range_hashing>::rehash(unsigned long)";
        let buckets = format!(
            "std::__detail::_Hashtable_alloc<std::allocator<{NODE} > >::_M_allocate_buckets(unsigned long)"
        );
        let allocate =
            format!("std::__new_allocator<{NODE} >::allocate(unsigned long, void const*)");
        let new = "operator new(unsigned long);malloc";
        let start = "_start;__libc_start_main;main::{lambda()#1}::operator()() const;\
            tbb::detail::r1::task_arena_impl::execute(tbb::detail::d1::task_arena_base&);\
            tbb::detail::d1::task_arena_function<main::{lambda()#1}::operator()() const::{lambda()#1}, \
            void>::operator()() const";
        let task = "start_thread;tbb::detail::r1::thread_dispatcher::run();\
            tbb::detail::d1::function_task<edm::WaitingTaskHolder::doneWaiting(std::exception_ptr)::\
            {lambda()#1}>::execute(tbb::detail::d1::execution_data&)";
        let mut program = ProgramBuilder::new();
        for (path, bytes) in [
            (format!("{start};{PRODUCE};{FILTER};{table};{buckets};{new}"), 121_384),
            (format!("{task};{PRODUCE};{FILTER};{allocate};{new}"), 727_104),
            (
                format!(
                    "{start};BookMVA(TMVA::Reader*);TMVA::MethodBase::ReadStateFromXML(void*);\
                TMVA::Node::ReadXML(void*, unsigned int);{new}"
                ),
                4,
            ),
            (
                format!(
                    "{start};f(std::basic_string_view<char, std::char_traits<char> >);\
                g<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > \
                const&>(int);edm::operator<< <unsigned long>(int);malloc"
                ),
                8,
            ),
            (format!("{start};edm::onnxruntime::Run(int);Ort::Session::Run();{new}"), 16),
            (
                format!(
                    "{start};std::__detail::_Compiler<std::__cxx11::regex_traits<char> >::_M_term();\
                std::__cxx11::basic_regex<char>::_M_compile();f;{new}"
                ),
                32,
            ),
            (format!("{start};TClass::GetClass(char const*, bool);TCling::LoadText();{new}"), 64),
        ] {
            program.block(&path, bytes);
        }
        let expected = [
            "BookMVA;TMVA 4",
            "ClusterShapeHitFilterESProducer:produce;ClusterShapeHitFilter:ClusterShapeHitFilter;\
             _Hashtable 121384",
            "TClass 64",
            "__detail:_Compiler<__cxx11:regex_traits<char> >:_M_term;regex 32",
            "edm:onnx 16",
            "f;g<string>;edm:op<< <ulong> 8",
            "function_task<edm:WaitingTaskHolder:doneWaiting(exception_ptr):{lambda()#1}>:execute;\
             ClusterShapeHitFilterESProducer:produce;ClusterShapeHitFilter:ClusterShapeHitFilter;\
             __new_allocator<__detail:_Hash_node<pair<uint, ClusterShapeHitFilter:StripData>, false> >:\
             allocate 727104",
        ];
        assert_eq!(rewritten("mallocprofiler", read(&program)), expected);
        let ignored = Rules::built_in("mallocprofiler").expect("a set");
        assert_eq!(ignored.ignored().len(), 1);
    }

    /// Names of boost::spirit with 30 kB are rewritten in linear time.
    #[test]
    fn names_of_30_kilobytes() {
        let mut rule = "boost::spirit::qi::char_class".to_owned();
        while rule.len() < 30_000 {
            let part =
                format!("boost::fusion::cons<{rule}, std::allocator<A<({})0> > >", rule.len());
            rule = if part.len() > 30_000 {
                format!("{part}>>")
            } else {
                format!("{part}, B<{part}>")
            };
        }
        let name = format!("bool my::parse<{rule}, std::allocator<int> >(X<{rule}>)");
        assert!(name.len() > 60_000);
        let spirit = format!("boost::spirit::qi::rule<{rule}>::parse({rule})");
        let stacks = format!("main;{name};{spirit};f");
        for (set, _) in SETS {
            let lines = rewritten(set, with_stacks(&[&stacks, "main"]));
            assert!(lines.iter().any(|line| line.ends_with(" 1")), "{set}");
        }
        let lines = rewritten("boost", with_stacks(&[&stacks]));
        assert!(lines[0].ends_with(";boost::spirit 1"), "{}", &lines[0][lines[0].len() - 100..]);
        assert!(!lines[0].contains("std::allocator"));
    }

    #[test]
    fn what_is_inside_the_standard_library() {
        let lines = rewritten(
            "std",
            with_stacks(&[
                "_start;main;std::vector<int, std::allocator<int> >::push_back(int const&);\
             void std::vector<int, std::allocator<int> >::_M_realloc_insert<int const&>(int*, int const&);\
             std::_Vector_base<int, std::allocator<int> >::_M_allocate(unsigned long);\
             std::allocator_traits<std::allocator<int> >::allocate(std::allocator<int>&, unsigned long);\
             std::__new_allocator<int>::allocate(unsigned long, void const*);operator new(unsigned long)",
                "start_thread;execute_native_thread_routine;\
             std::thread::_State_impl<std::thread::_Invoker<std::tuple<main::{lambda()#1}> > >::_M_run();\
             void std::__invoke_impl<void, main::{lambda()#1}>(std::__invoke_other, main::{lambda()#1}&&);\
             main::{lambda()#1}::operator()() const",
                "f(std::map<int, std::__cxx11::basic_string<char, std::char_traits<char>, \
             std::allocator<char> >, std::less<int>, std::allocator<std::pair<int const, \
             std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > > > >&)",
            ]),
        );
        let expected = [
            "f(std::map<int, std::string>&) 4",
            "main::{lambda()#1}::operator()() const 2",
            "main;std::vector<int>::push_back(int const&) 1",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn interpreters_and_runtimes_are_a_frame() {
        let python = rewritten(
            "cpython",
            with_stacks(&[
                "_start;Py_BytesMain;pymain_main;Py_RunMain;PyEval_EvalCode;_PyEval_Vector;\
             _PyEval_EvalFrameDefault;PyObject_Vectorcall;_PyFunction_Vectorcall;\
             _PyEval_EvalFrameDefault;list_sort;_PyEval_EvalFrameDefault;unicode_new;PyObject_Malloc",
                "Py_BytesMain;PyImport_ImportModuleLevel;_PyEval_EvalFrameDefault;PyImport_Import;\
             _PyEval_EvalFrameDefault;PyDict_New",
            ]),
        );
        assert_eq!(
            python,
            [
                "[Python];[Python import];[Python];PyDict_New 2",
                "[Python];list_sort;[Python];unicode_new 1"
            ]
        );
        let with_frames = rewritten(
            "python",
            with_stacks(&[
                "_start;__libc_start_main;Py_BytesMain;pymain_run_python;PyEval_EvalCode;\
             _PyEval_Vector;main.py;PyObject_Vectorcall;list_sort;_PyFunction_Vectorcall;key;\
             unicode_new;PyObject_Malloc",
                "Py_BytesMain;main.py;PyImport_ImportModuleLevelObject;import_find_and_load;load",
            ]),
        );
        assert_eq!(with_frames, ["main.py;list_sort;key;unicode_new 1", "main.py;load 2"]);
        let tokio = rewritten(
            "tokio",
            with_stacks(&["start_thread;tokio::runtime::scheduler::multi_thread::worker::run;\
             tokio::runtime::task::raw::poll;tokio::runtime::task::core::Core<T,S>::poll;app::serve"]),
        );
        assert_eq!(tokio, ["[tokio];app::serve 1"]);
        let rust = rewritten(
            "rust",
            with_stacks(&[
                "main;std::rt::lang_start_internal;app::main::{{closure}}::{{closure}};\
             <alloc::vec::Vec<T> as alloc::vec::spec_from_iter::SpecFromIter<T,I>>::from_iter;\
             alloc::raw_vec::RawVec<T,A>::grow_one::h0123456789abcdef;__rustc::__rust_alloc",
            ]),
        );
        assert_eq!(rust, ["main;app::main 1"]);
        let regex = rewritten(
            "regex",
            with_stacks(&[
                "main;std::__cxx11::basic_regex<char, std::__cxx11::regex_traits<char> >::_M_compile(int);f",
                "main;regex::regex::string::Regex::new;regex_automata::f",
                "main;<regex_syntax::ast::A as core::fmt::Display>::fmt",
            ]),
        );
        assert_eq!(regex, ["main;[Rust regex] 6", "main;std::regex 1"]);
        let tbb = rewritten(
            "tbb",
            with_stacks(&[
                "main;tbb::detail::d1::parallel_for(int);tbb::detail::r1::execute_and_wait();\
             tbb::detail::d1::start_for<R, B<int>, P>::execute(tbb::detail::d1::execution_data&);\
             tbb::detail::d1::start_for<R, B<int>, P>::run_body(R&);body(int)",
            ]),
        );
        assert_eq!(tbb, ["[tbb];body(int) 1"]);
        let qt = rewritten(
            "qt",
            with_stacks(&[
                "main;QCoreApplication::exec();QEventLoop::exec(QFlags<int>);QObject::event(QEvent*);\
             void doActivate<false>(QObject*, int, void**);QtPrivate::QSlotObjectBase::call(QObject*);\
             Window::clicked()",
            ]),
        );
        assert_eq!(qt, ["main;[Qt event loop];Window::clicked() 1"]);
        let cling = rewritten(
            "cling",
            with_stacks(&["main;TClass::GetClass(char);llvm::f();malloc", "main;llvm::f();g"]),
        );
        assert_eq!(cling, ["main;TClass 1", "main;llvm 2"]);
    }
}
