// Blocks of commands with their outputs: prompts cannot be selected, and the button for copying
// takes the commands alone.

(() => {
    "use strict";

    const prompt = /^[$>]( |$)/;

    function marked(line) {
        const part = document.createElement("span");
        if (!prompt.test(line)) {
            part.className = "console-output";
            part.textContent = line + "\n";
            return [part];
        }
        const command = document.createElement("span");
        part.className = "console-prompt";
        part.textContent = line.slice(0, 2);
        command.className = "console-command";
        command.textContent = line.slice(2) + "\n";
        return [part, command];
    }

    const commands = (text) =>
        text.split("\n").filter((line) => prompt.test(line)).map((line) => line.slice(2)).join("\n");

    function prepare(block) {
        const text = block.textContent.replace(/\n$/, "");
        block.replaceChildren(...text.split("\n").flatMap(marked));
        const copy = block.parentElement.querySelector(".clip-button");
        copy?.addEventListener(
            "click",
            (event) => {
                event.stopImmediatePropagation();
                navigator.clipboard.writeText(commands(text));
            },
            true,
        );
    }

    window.addEventListener("load", () => {
        document.querySelectorAll("code.language-console").forEach(prepare);
    });
})();
