package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"monopod/internal/model"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

// signedSet is an answer that is signed as far as these tests are concerned.
func signedSet(version int, payload string) string {
	return fmt.Sprintf("good %d\n%s", version, payload)
}

// versioned has answers checked as signedSet makes them.
func versioned(c *HTTPConfig) {
	c.Verify = func(_ context.Context, body, _ []byte) ([]byte, uint64, error) {
		head, payload, _ := strings.Cut(string(body), "\n")
		number, ok := strings.CutPrefix(head, "good ")
		if !ok {
			return nil, 0, errors.New("nobody vouches for it")
		}
		version, err := strconv.ParseUint(number, 10, 64)
		return []byte(payload), version, err
	}
}

func TestAnOlderSignedSetIsRefusedAndANewerOneCounts(t *testing.T) {
	dir := t.TempDir()
	web := newWebServer(t, text(signedSet(2, podYAML("x", "v2"))))
	s := askKept(t, web.URL, dir, versioned)
	s.Wants("x=v2", model.InputAccepted)
	web.answer(text(signedSet(1, podYAML("x", "v1"))))
	s.Wants("x=v2", model.InputRefused)
	set := s.Says("version 1 is older than version 2, which was accepted before")
	if set.Unread {
		t.Error("what is wanted is known")
	}
	web.answer(text(signedSet(2, podYAML("x", "other"))))
	s.Wants("x=other", model.InputAccepted) // not older
	web.answer(text(signedSet(10, podYAML("x", "v10"))))
	s.Wants("x=v10", model.InputAccepted)
	web.answer(text(signedSet(9, podYAML("x", "v9"))))
	s.Wants("x=v10", model.InputRefused)
	s.Stop()

	again := askKept(t, web.URL, dir, versioned)
	again.Wants("x=v10", model.InputRefused)
	again.Says("older than version 10")
	again.NeverWithout("x")
}

func TestARefusedSetDoesNotRaiseTheVersion(t *testing.T) {
	dir := t.TempDir()
	web := newWebServer(t, text(signedSet(2, podYAML("x", "v2"))))
	s := askKept(t, web.URL, dir, versioned)
	s.Wants("x=v2", model.InputAccepted)
	web.answer(text(signedSet(9, "no: manifest\n")))
	s.Wants("x=v2", model.InputRefused)
	web.answer(text("bad 12\n" + podYAML("x", "v12")))
	s.Says("nobody vouches for it")
	web.answer(text(signedSet(3, podYAML("x", "v3"))))
	s.Wants("x=v3", model.InputAccepted)
}

func TestTheHighestVersionOutlivesADamagedCopyAndTheCopyADamagedVersion(t *testing.T) {
	for name, tt := range map[string]struct {
		damage func(t *testing.T, at string)
		// runs is what runs from disk.
		runs string
		says string
	}{
		"the copy is damaged":    {func(t *testing.T, at string) { cutOff(t, filepath.Join(at, copyFile)) }, "", "damaged"},
		"the copy is gone":       {func(t *testing.T, at string) { watchertest.Must(t, os.Remove(filepath.Join(at, copyFile))) }, "", ""},
		"the version is damaged": {func(t *testing.T, at string) { cutOff(t, filepath.Join(at, versionFile)) }, "x=v5", "cannot be read from its file"},
		"the version is empty":   {func(t *testing.T, at string) { watchertest.Write(t, filepath.Join(at, versionFile), "") }, "x=v5", "cannot be read from its file"},
		"the version is too large": {func(t *testing.T, at string) {
			watchertest.Write(t, filepath.Join(at, versionFile), strings.Repeat("9", 9999))
		}, "x=v5", "cannot be read from its file"},
		"the version is another": {func(t *testing.T, at string) {
			watchertest.Write(t, filepath.Join(at, versionFile), "3 "+checksum([]byte("4"))+"\n")
		}, "x=v5", "cannot be read from its file"},
		"the version is gone": {func(t *testing.T, at string) { watchertest.Must(t, os.Remove(filepath.Join(at, versionFile))) }, "x=v5", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			at := filepath.Join(dir, "fleet")
			web := newWebServer(t, text(signedSet(5, podYAML("x", "v5"))))
			s := askKept(t, web.URL, dir, versioned)
			s.Wants("x=v5", model.InputAccepted)
			s.Stop()
			tt.damage(t, at)
			web.answer(text(signedSet(4, podYAML("x", "v4"))))
			s = askKept(t, web.URL, dir, versioned)
			s.Says("version 4 is older than version 5")
			if first := s.History()[0]; watchertest.Images(first) != tt.runs || !strings.Contains(strings.Join(first.Inputs[0].Errors, "\n"), tt.says) {
				t.Errorf("at first %q: %+v", watchertest.Images(first), first.Inputs)
			}
			web.answer(text(signedSet(6, podYAML("x", "v6"))))
			set := s.Wants("x=v6", model.InputAccepted)
			if len(set.Inputs[0].Errors) > 0 {
				t.Errorf("%q", set.Inputs[0].Errors)
			}
			s.Stop()
			if v, err := NewCopy(at).Highest(); v != 6 || err != nil {
				t.Errorf("version %d, %v", v, err)
			}
		})
	}
}

func cutOff(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	watchertest.Must(t, err)
	watchertest.Must(t, os.WriteFile(path, data[:len(data)-7], 0o600))
}

func TestACopyThatIsOlderThanTheHighestVersionStartsPodsButRemovesNone(t *testing.T) {
	dir := t.TempDir()
	web := newWebServer(t, text(signedSet(4, podYAML("x", "v4"))))
	s := askKept(t, web.URL, dir, versioned)
	s.Wants("x=v4", model.InputAccepted)
	s.Stop()
	watchertest.Must(t, NewCopy(filepath.Join(dir, "fleet")).Raise(5)) // as if the answer of version 5 could not be kept

	s = askKept(t, web.URL, dir, versioned) // which somebody replays
	set := s.Says("version 4 is older than version 5")
	if first := s.History()[0]; watchertest.Images(first) != "x=v4" || !first.Unread || !set.Unread {
		t.Errorf("%+v, then %+v", first, set)
	}
	web.answer(text(signedSet(5, podYAML("z", "v5"))))
	s.Until("version 5", func(set watcher.Set) bool { return watchertest.Images(set) == "z=v5" && !set.Unread })
}

func TestAVersionThatCannotBeKeptIsReportedAndCountsAsLongAsTheAgentRuns(t *testing.T) {
	dir := t.TempDir()
	var full *atomic.Bool
	web := newWebServer(t, text(signedSet(2, podYAML("x", "v2"))))
	s := askKept(t, web.URL, dir, versioned, func(c *HTTPConfig) {
		full = fillable(c.Copy, versionFile)
		full.Store(true)
	})
	s.Wants("x=v2", model.InputAccepted)
	s.Says("store the version of the answer")
	web.answer(text(signedSet(1, podYAML("x", "v1"))))
	s.Says("older than version 2")
	web.answer(text(signedSet(2, podYAML("x", "v2"))))
	full.Store(false)
	s.Until("nothing to say", func(set watcher.Set) bool {
		return set.Inputs[0].State == model.InputAccepted && len(set.Inputs[0].Errors) == 0
	})
	if v, err := NewCopy(filepath.Join(dir, "fleet")).Highest(); v != 2 || err != nil {
		t.Errorf("version %d, %v", v, err)
	}
}

func TestAnAnswerThatNobodyVouchedForIsJudgedAgain(t *testing.T) {
	keys := make(chan struct{})
	web := newWebServer(t, text(podYAML("x", "v1")))
	s := askKept(t, web.URL, t.TempDir(), func(c *HTTPConfig) {
		c.Verify = func(_ context.Context, body, _ []byte) ([]byte, uint64, error) {
			select {
			case <-keys:
				return body, 1, nil
			default:
				return nil, 0, errors.New("there is no key yet")
			}
		}
	})
	s.Says("there is no key yet")
	close(keys)
	s.Wants("x=v1", model.InputAccepted)
}

func TestASourceThatIsNotSignedAnyMoreHasNoVersions(t *testing.T) {
	dir := t.TempDir()
	web := newWebServer(t, text(signedSet(5, podYAML("x", "v5"))))
	s := askKept(t, web.URL, dir, versioned)
	s.Wants("x=v5", model.InputAccepted)
	s.Stop()
	web.answer(text(podYAML("x", "v1")))
	askKept(t, web.URL, dir).Wants("x=v1", model.InputAccepted)
}

func TestADetachedSignatureIsAskedForWithTheAnswer(t *testing.T) {
	const token = "Bearer 1"
	web := newWebServer(t, nil)
	serve := func(version string, signature http.HandlerFunc) {
		web.answer(func(rw http.ResponseWriter, r *http.Request) {
			switch {
			case r.Header.Get("Authorization") != token || r.URL.RawQuery != "node=1":
				rw.WriteHeader(http.StatusForbidden)
			case r.URL.Path == "/pods.yaml":
				text(podYAML("x", version))(rw, r)
			case r.URL.Path == "/pods.yaml.minisig":
				signature(rw, r)
			default:
				rw.WriteHeader(http.StatusTeapot)
			}
		})
	}
	serve("v1", text("for image: v1"))
	s := askKept(t, web.URL+"/pods.yaml?node=1", t.TempDir(), func(c *HTTPConfig) {
		c.Detached = true
		c.Header = http.Header{"Authorization": {token}}
		c.Verify = func(_ context.Context, body, signature []byte) ([]byte, uint64, error) {
			if want, _ := strings.CutPrefix(string(signature), "for "); want == "" || !strings.Contains(string(body), want) {
				return nil, 0, fmt.Errorf("signature %q", signature)
			}
			return body, 1, nil
		}
	})
	s.Wants("x=v1", model.InputAccepted)
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		state  model.InputState
		says   string
	}{
		{"the old one", text("for image: v1"), model.InputRefused, `signature "for image: v1"`},
		{"none", status(404), model.InputRefused, "there is no signature: " + web.URL + "/pods.yaml.minisig?node=xxxxx: answered 404"},
		{"no more", status(410), model.InputRefused, "there is no signature"},
		{"an error", status(500), model.InputUnreachable, "/pods.yaml.minisig?node=xxxxx: answered 500"},
		{"an empty one", text(""), model.InputRefused, `signature ""`},
		{"one that is too large", text(strings.Repeat("x", maxSignature+1)), model.InputRefused, "larger than 64 KiB"},
		{"a cut-off one", raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfor image: v2"), model.InputUnreachable, "unexpected EOF"},
		{"a redirect to another host", http.RedirectHandler("http://localhost:1/", http.StatusFound).ServeHTTP, model.InputUnreachable, "leads to another host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			serve("v2", tt.answer)
			s.Says(tt.says)
			s.Wants("x=v1", tt.state)
		})
	}
	serve("v2", text("for image: v2"))
	s.Wants("x=v2", model.InputAccepted)
	s.NeverWithout("x")
}
