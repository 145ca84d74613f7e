package spec

import words "monopod/internal/expand"

// expand replaces $(NAME) by the value of NAME.
func expand(s string, vars map[string]string) string { return words.Word(s, vars) }
