package printer

import "strings"

// About returns text with what it is about in front, as in "web.yaml: not YAML", unless text names that itself.
func About(subject, text string) string {
	if strings.Contains(text, subject) {
		return text
	}
	return subject + ": " + text
}

// Lead returns text with lead in front, unless text begins with one that is alike: with start.
func Lead(lead, start, text string) string {
	if strings.HasPrefix(text, start) {
		return text
	}
	return lead + text
}

// FirstLine returns text up to its first line end.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// TextLines returns the lines of text, without blank ones at both ends.
func TextLines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }

// ErrorAbout is About for errors; nil stays nil.
func ErrorAbout(subject string, err error) error {
	if err == nil || strings.Contains(err.Error(), subject) {
		return err
	}
	return &aboutError{subject, err}
}

type aboutError struct {
	subject string
	err     error
}

func (e *aboutError) Error() string { return e.subject + ": " + e.err.Error() }
func (e *aboutError) Unwrap() error { return e.err }
