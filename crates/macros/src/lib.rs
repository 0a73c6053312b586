//! `#[heaptide::limits(…)]`: limits on the allocations of a function, for the feature `attribute`
//! of the crate heaptide.

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// The limits: methods of `heaptide::Limits`.
const LIMITS: [&str; 5] =
    ["allocations", "requested_bytes", "peak_bytes", "leaked_blocks", "leaked_bytes"];

/// Limits the allocations of a function on its thread, like `heaptide::Limits`.
///
/// The arguments are limits of the form `NAME = NUMBER`, separated by commas: `allocations`,
/// `requested_bytes`, `peak_bytes`, `leaked_blocks`, `leaked_bytes`. Without arguments the function
/// must not allocate at all. It may return a value, but must not be `async` or `const`.
#[proc_macro_attribute]
pub fn limits(arguments: TokenStream, function: TokenStream) -> TokenStream {
    match limited(arguments, function.clone()) {
        Ok(limited) => limited,
        // Keep the function, so that there are no further errors.
        Err((span, message)) => {
            let mut all = compile_error(span, &message);
            all.extend(function);
            all
        }
    }
}

type Problem = (Span, String);

/// Returns the function with `::heaptide::Limits::new().…check(move || { body })` as its body.
fn limited(arguments: TokenStream, function: TokenStream) -> Result<TokenStream, Problem> {
    let mut limits = parse(arguments)?;
    if limits.is_empty() {
        limits.push((Ident::new(LIMITS[0], Span::call_site()), Literal::u64_unsuffixed(0).into()));
    }
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    let is_word = |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(ident) if ident.to_string() == word);
    let head = tokens.iter().take_while(|token| !is_word(token, "fn"));
    for token in head {
        if ["async", "const"].iter().any(|word| is_word(token, word)) {
            let what = format!("limits: the function is {token}, expected a plain function");
            return Err((token.span(), what));
        }
    }
    let body = match tokens.pop() {
        Some(TokenTree::Group(body))
            if body.delimiter() == Delimiter::Brace
                && tokens.iter().any(|token| is_word(token, "fn")) =>
        {
            body
        }
        last => {
            let span = last.map_or_else(Span::call_site, |token| token.span());
            return Err((span, "limits: expected a function with a body".to_owned()));
        }
    };
    let span = body.span();
    let mut call: Vec<TokenTree> = path(&["heaptide", "Limits", "new"]);
    call.push(group(Delimiter::Parenthesis, TokenStream::new()));
    for (name, value) in limits {
        call.push(Punct::new('.', Spacing::Alone).into());
        call.push(name.into());
        call.push(group(Delimiter::Parenthesis, value.into()));
    }
    call.push(Punct::new('.', Spacing::Alone).into());
    call.push(Ident::new("check", span).into());
    let closure: [TokenTree; 4] = [
        Ident::new("move", span).into(),
        Punct::new('|', Spacing::Joint).into(),
        Punct::new('|', Spacing::Alone).into(),
        body.into(),
    ];
    call.push(group(Delimiter::Parenthesis, closure.into_iter().collect()));
    tokens.push(group(Delimiter::Brace, call.into_iter().collect()));
    Ok(tokens.into_iter().collect())
}

/// Parses names and numbers in `NAME = NUMBER, …`.
fn parse(arguments: TokenStream) -> Result<Vec<(Ident, TokenTree)>, Problem> {
    let mut limits: Vec<(Ident, TokenTree)> = Vec::new();
    let mut tokens = arguments.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let span = token.span();
        let name = match token {
            TokenTree::Ident(name) if LIMITS.contains(&&*name.to_string()) => name,
            other => {
                let expected = LIMITS.join(", ");
                return Err((span, format!("limits: `{other}`, expected one of {expected}")));
            }
        };
        if limits.iter().any(|(other, _)| other.to_string() == name.to_string()) {
            return Err((span, format!("limits: {name} is given twice")));
        }
        let has_equals = matches!(tokens.next(), Some(TokenTree::Punct(of)) if of.as_char() == '=');
        let value = tokens.next().filter(|of| matches!(of, TokenTree::Literal(_)));
        let Some(value) = value.filter(|_| has_equals) else {
            return Err((span, format!("limits: expected `{name} = NUMBER`")));
        };
        limits.push((name, value));
        match tokens.next() {
            None => break,
            Some(TokenTree::Punct(comma)) if comma.as_char() == ',' => {}
            Some(other) => {
                return Err((other.span(), format!("limits: `{other}`, expected a comma")));
            }
        }
    }
    Ok(limits)
}

/// Returns the tokens of `::a::b`.
fn path(words: &[&str]) -> Vec<TokenTree> {
    let mut tokens = Vec::new();
    for word in words {
        tokens.push(Punct::new(':', Spacing::Joint).into());
        tokens.push(Punct::new(':', Spacing::Alone).into());
        tokens.push(Ident::new(word, Span::call_site()).into());
    }
    tokens
}

fn group(delimiter: Delimiter, tokens: TokenStream) -> TokenTree {
    Group::new(delimiter, tokens).into()
}

/// Returns the tokens of `::core::compile_error!{"message"}` at a location.
fn compile_error(span: Span, message: &str) -> TokenStream {
    let mut tokens = path(&["core", "compile_error"]);
    tokens.push(Punct::new('!', Spacing::Alone).into());
    let mut text = Literal::string(message);
    text.set_span(span);
    tokens.push(group(Delimiter::Brace, TokenTree::from(text).into()));
    tokens.iter_mut().for_each(|token| token.set_span(span));
    tokens.into_iter().collect()
}
