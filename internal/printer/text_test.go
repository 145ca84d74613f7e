package printer

import (
	"errors"
	"io/fs"
	"slices"
	"testing"
)

func TestTextIsPutTogetherOnce(t *testing.T) {
	for got, want := range map[string]string{
		About("web.yaml", "not YAML"):                                           "web.yaml: not YAML",
		About("web.yaml", "web.yaml:3: not YAML"):                               "web.yaml:3: not YAML",
		About("https://x/y", `Get "https://x/y": refused`):                      `Get "https://x/y": refused`,
		Lead("pull image \"a\": ", "pull image ", "no space"):                   "pull image \"a\": no space",
		Lead("pull image \"a\": ", "pull image ", "pull image \"b\": no space"): "pull image \"b\": no space",
		FirstLine("panic: x\ngoroutine 1"):                                      "panic: x",
		FirstLine("one"):                                                        "one",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := TextLines("\none\n\ntwo\n"); !slices.Equal(got, []string{"one", "", "two"}) {
		t.Errorf("%q", got)
	}
}

func TestErrorAboutNamesItsSubjectOnce(t *testing.T) {
	missing := &fs.PathError{Op: "open", Path: "/x", Err: fs.ErrNotExist}
	if err := ErrorAbout("/x", missing); err.Error() != "open /x: file does not exist" {
		t.Error(err)
	}
	err := ErrorAbout("stdin", errors.Join(fs.ErrClosed))
	if err.Error() != "stdin: file already closed" || !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}
	if err := ErrorAbout("x", nil); err != nil {
		t.Error(err)
	}
}
