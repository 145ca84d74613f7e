package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/podhash"
	"monopod/manifests/policy"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

// partsLoader reads real manifests, object by object.
func partsLoader(source string) watcher.Loader {
	return func(input string, data []byte) (*manifests.Content, error) {
		return decode.Parts(input, data, decode.Options{Source: source, Policy: policy.Policy{PodSecurity: "privileged"}})
	}
}

// podYAML is a manifest of a pod; the image tells the version.
func podYAML(name, image string) string {
	return "---\napiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: c, image: " + image + "}]}\n"
}

// askKept starts a source with a copy in dir, as a fresh process would.
func askKept(t *testing.T, address, dir string, change ...func(*HTTPConfig)) *watchertest.Runner {
	t.Helper()
	cfg := HTTPConfig{Name: "fleet", URL: address, CheckFrequency: 2 * time.Millisecond, Load: partsLoader("fleet"), Copy: NewCopy(filepath.Join(dir, "fleet"))}
	for _, f := range change {
		f(&cfg)
	}
	return watchertest.StartSource(t, NewHTTPSource(cfg))
}

func TestPodsStartFromTheCopyOnDiskBeforeTheServerIsAsked(t *testing.T) {
	dir := t.TempDir()
	web := newWebServer(t, text(podYAML("x", "v1")+podYAML("z", "v1")))
	s := askKept(t, web.URL, dir)
	s.Wants("x=v1 z=v1", model.InputAccepted)
	s.Stop()
	address := web.URL
	web.Close()

	offline := askKept(t, address, dir)
	offline.Wants("x=v1 z=v1", model.InputUnreachable)
	first := offline.History()[0]
	if watchertest.Images(first) != "x=v1 z=v1" || first.Unread || first.Inputs[0].State != model.InputAccepted || first.Inputs[0].FromDisk.IsZero() {
		t.Errorf("before it is asked: %+v", first)
	}
	last, _ := offline.Last()
	why := strings.Join(last.Inputs[0].Errors, "\n")
	if last.Inputs[0].FromDisk.IsZero() || !strings.Contains(why, "connection refused") || !strings.Contains(why, "cached answer of 20") || !strings.Contains(why, "less than a minute old") {
		t.Errorf("report %+v", last.Inputs[0])
	}
}

func TestAConfirmedCopyIsNoCopyAnyMore(t *testing.T) {
	dir := t.TempDir()
	web := newWebServer(t, nil)
	web.answer(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"1"` {
			rw.WriteHeader(http.StatusNotModified)
			return
		}
		rw.Header().Set("ETag", `"1"`)
		text(podYAML("x", "v1"))(rw, r)
	})
	s := askKept(t, web.URL, dir)
	s.Wants("x=v1", model.InputAccepted)
	s.Stop()
	again := askKept(t, web.URL, dir)
	set := again.Until("an answer", func(set watcher.Set) bool { return len(set.Inputs) == 1 && set.Inputs[0].FromDisk.IsZero() })
	if watchertest.Images(set) != "x=v1" || set.Inputs[0].State != model.InputAccepted || len(set.Inputs[0].Errors) > 0 {
		t.Errorf("%+v", set)
	}
}

func TestOneBadObjectKeepsItsLastGoodContentAlsoOverARestart(t *testing.T) {
	dir := t.TempDir()
	web := newWebServer(t, text(podYAML("a", "v1")+podYAML("b", "v1")+podYAML("c", "v1")))
	s := askKept(t, web.URL, dir)
	s.Wants("a=v1 b=v1 c=v1", model.InputAccepted)
	web.answer(text(strings.Replace(podYAML("b", "v2"), "image:", "imige:", 1) + podYAML("a", "v2")))
	set := s.Wants("a=v2 b=v1", model.InputRefused)
	if why := strings.Join(set.Inputs[0].Errors, "\n"); !strings.Contains(why, "pod default/b") || !strings.Contains(why, "imige") || set.Unread {
		t.Errorf("%+v", set)
	}
	s.NeverWithout("b")
	s.Stop()
	web.Close()

	offline := askKept(t, web.URL, dir)
	offline.Wants("a=v2 b=v1", model.InputUnreachable)
	if first := offline.History()[0]; watchertest.Images(first) != "a=v2 b=v1" || first.Unread || first.Inputs[0].State != model.InputRefused {
		t.Errorf("from disk: %+v", first)
	}
	before, after := set.Pods[1], offline.History()[0].Pods[1]
	if podhash.Pod(before.Object) != podhash.Pod(after.Object) {
		t.Errorf("the pod that was held is another one after the restart")
	}
}

func TestWhatMayBeRemovedWhileAnObjectIsBadFromTheBeginning(t *testing.T) {
	bad := strings.Replace(podYAML("b", "v1"), "image:", "imige:", 1)
	for name, unread := range map[string]bool{
		"fleet": false, // nothing can run from a source that has never had an answer
		"http":  true,  // b may run since before there were copies
	} {
		t.Run(name, func(t *testing.T) {
			web := newWebServer(t, text(podYAML("a", "v1")+bad))
			s := askKept(t, web.URL, t.TempDir(), func(c *HTTPConfig) { c.Name = name })
			if set := s.Wants("a=v1", model.InputRefused); set.Unread != unread {
				t.Errorf("%+v", set)
			}
			web.answer(text(podYAML("a", "v1")))
			s.Until("that all is known", func(set watcher.Set) bool {
				return !set.Unread && watchertest.StateOf(set, web.URL) == model.InputAccepted
			})
		})
	}
}

// Whether a source may want more than is known matters for the pods of sources that no longer exist.
func TestASourceSaysWhetherAllOfItIsKnown(t *testing.T) {
	good, bad := text(podYAML("a", "v1")), text(podYAML("a", "v1")+strings.Replace(podYAML("b", "v1"), "image:", "imige:", 1))
	kept := func(t *testing.T) string {
		dir := t.TempDir()
		web := newWebServer(t, good)
		askKept(t, web.URL, dir).Wants("a=v1", model.InputAccepted)
		return dir
	}
	for name, tt := range map[string]struct {
		copied  bool
		answer  http.HandlerFunc
		state   model.InputState
		partial bool
	}{
		"a good answer":                        {false, good, model.InputAccepted, false},
		"a mistake in the first answer":        {false, bad, model.InputRefused, true},
		"the copy is confirmed":                {true, good, model.InputAccepted, false},
		"a mistake in the answer since a copy": {true, bad, model.InputRefused, true},
		"an answer that is refused":            {true, text("<html>\n"), model.InputRefused, true},
		"nobody answers":                       {true, status(500), model.InputUnreachable, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.copied {
				dir = kept(t)
			}
			web := newWebServer(t, tt.answer)
			s := askKept(t, web.URL, dir)
			s.Until(fmt.Sprint("partial: ", tt.partial), func(set watcher.Set) bool {
				return len(set.Inputs) == 1 && set.Inputs[0].State == tt.state && set.Inputs[0].FromDisk.IsZero() == (tt.state != model.InputUnreachable && name != "an answer that is refused") && set.Partial == tt.partial && !set.Unread
			})
			if first := s.History()[0]; tt.copied && (!first.Partial || first.Unread) {
				t.Errorf("before the place was asked: %+v", first)
			}
			if !tt.partial {
				return
			}
			web.answer(good)
			s.Until("all is known", func(set watcher.Set) bool {
				return !set.Partial && !set.Unread && set.Inputs[0].State == model.InputAccepted
			})
		})
	}
}

func TestListsAndAllKindsAreJudgedObjectByObject(t *testing.T) {
	item := func(name, image string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"c","image":` + image + `}]}}`
	}
	settings := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"s"},"data":{"a":"1"}}`
	tests := map[string]struct {
		answer, pods string
		objects      int
		state        model.InputState
	}{
		"a pod":      {item("a", `"v1"`), "a=v1", 0, model.InputAccepted},
		"a PodList":  {`{"apiVersion":"v1","kind":"PodList","items":[` + item("a", `"v1"`) + "," + item("b", "7") + `]}`, "a=v1", 0, model.InputRefused},
		"a List":     {`{"apiVersion":"v1","kind":"List","items":[` + settings + "," + item("b", "7") + "," + item("a", `"v1"`) + `]}`, "a=v1", 1, model.InputRefused},
		"documents":  {"# of all kinds\n" + podYAML("a", "v1") + "---\n" + settings + "\n---\n{kind: Pod, apiVersion: v1, metadata: {name: b}, spec: {}}\n---\n{kind: Ingress, apiVersion: networking.k8s.io/v1}\n", "a=v1", 1, model.InputRefused},
		"only lists": {`{"apiVersion":"v1","kind":"List","items":[]}`, "", 0, model.InputAccepted},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			web := newWebServer(t, text(tt.answer))
			set := askKept(t, web.URL, t.TempDir()).Wants(tt.pods, tt.state)
			if len(set.Objects) != tt.objects || set.Unread {
				t.Errorf("%+v", set)
			}
		})
	}
}

func TestAnAtomicSourceRefusesAnAnswerWithAMistakeAsAWhole(t *testing.T) {
	web := newWebServer(t, text(podYAML("a", "v1")+podYAML("b", "v1")))
	s := askKept(t, web.URL, t.TempDir(), func(c *HTTPConfig) { c.Atomic = true })
	s.Wants("a=v1 b=v1", model.InputAccepted)
	web.answer(text(podYAML("a", "v2") + "---\nkind: Pod\n"))
	s.Wants("a=v1 b=v1", model.InputRefused)
}

func TestADamagedCopyIsReportedAndNotUsed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "fleet", copyFile)
	web := newWebServer(t, text(podYAML("x", "v1")))
	s := askKept(t, web.URL, dir)
	s.Wants("x=v1", model.InputAccepted)
	s.Stop()
	data, err := os.ReadFile(path)
	watchertest.Must(t, err)
	data[len(data)-3] ^= 1 // a pod of another name, or none at all
	watchertest.Must(t, os.WriteFile(path, data, 0o600))

	web.answer(status(500))
	s = askKept(t, web.URL, dir)
	set := s.Until("500", func(set watcher.Set) bool {
		return len(set.Inputs) == 1 && strings.Contains(strings.Join(set.Inputs[0].Errors, "\n"), "500")
	})
	if why := strings.Join(set.Inputs[0].Errors, "\n"); !set.Unread || len(set.Pods) > 0 || !strings.Contains(why, "damaged and not used") {
		t.Errorf("%+v", set)
	}
	if first := s.History()[0]; !first.Unread || !strings.Contains(strings.Join(first.Inputs[0].Errors, "\n"), "damaged") {
		t.Errorf("before it was asked: %+v", first)
	}
	web.answer(text(podYAML("x", "v2")))
	set = s.Wants("x=v2", model.InputAccepted)
	if len(set.Inputs[0].Errors) > 0 {
		t.Errorf("%+v", set.Inputs)
	}
	s.Stop()
	if k, err := NewCopy(filepath.Join(dir, "fleet")).Load(); err != nil || string(k.Body) != podYAML("x", "v2") {
		t.Errorf("the copy after it: %+v, %v", k, err)
	}
}

func TestACopyThatIsRefusedNowIsNotUsedAndNothingMayBeRemoved(t *testing.T) {
	dir := t.TempDir()
	web := newWebServer(t, text(podYAML("x", "v1")))
	s := askKept(t, web.URL, dir)
	s.Wants("x=v1", model.InputAccepted)
	s.Stop()
	web.Close()
	strict := askKept(t, web.URL, dir, func(c *HTTPConfig) {
		c.Load = func(input string, data []byte) (*manifests.Content, error) {
			return decode.Parts(input, data, decode.Options{Source: "fleet", Policy: policy.Policy{PodSecurity: "restricted"}})
		}
	})
	set := strict.Until("a refused connection", func(set watcher.Set) bool {
		return strings.Contains(strings.Join(set.Inputs[0].Errors, "\n"), "connection refused")
	})
	if why := strings.Join(set.Inputs[0].Errors, "\n"); !set.Unread || len(set.Pods) > 0 || !strings.Contains(why, "the cached answer is not used") || !strings.Contains(why, "restricted") {
		t.Errorf("%+v", set)
	}
}

func TestAnAnswerThatCannotBeKeptCountsAndIsReportedAndTheStaleCopyRemovesNothing(t *testing.T) {
	dir := t.TempDir()
	web := newWebServer(t, text(podYAML("x", "v1")))
	var full *atomic.Bool
	onDisk := func(c *HTTPConfig) { full = fillable(c.Copy, copyFile) }
	s := askKept(t, web.URL, dir, onDisk)
	s.Wants("x=v1", model.InputAccepted)
	full.Store(true)
	web.answer(text(podYAML("x", "v2") + podYAML("w", "v2")))
	set := s.Wants("x=v2 w=v2", model.InputAccepted)
	if why := strings.Join(set.Inputs[0].Errors, "\n"); !strings.Contains(why, "cache the answer") {
		t.Errorf("%+v", set.Inputs)
	}
	s.Stop()
	web.answer(status(500))

	stale := askKept(t, web.URL, dir, onDisk)
	set = stale.Wants("x=v1", model.InputUnreachable)
	if !set.Unread {
		t.Error("w, which may run, may be removed because of a stale copy")
	}
	web.answer(text(podYAML("x", "v1")))
	stale.Until("that all is known", func(set watcher.Set) bool {
		return !set.Unread && watchertest.Images(set) == "x=v1" && len(set.Inputs[0].Errors) == 0
	})
	stale.Stop()
	if k, err := NewCopy(filepath.Join(dir, "fleet")).Load(); err != nil || k.Stale || string(k.Body) != podYAML("x", "v1") {
		t.Errorf("the copy after it: %+v, %v", k, err)
	}
}

func TestACopyIsWrittenOnlyWhenTheAnswerChanges(t *testing.T) {
	dir := t.TempDir()
	web := newWebServer(t, text(podYAML("x", "v1")))
	s := askKept(t, web.URL, dir)
	s.Wants("x=v1", model.InputAccepted)
	written, err := os.Stat(filepath.Join(dir, "fleet", copyFile))
	watchertest.Must(t, err)
	n := web.asked.Load()
	s.WaitFor("ten more requests", func() bool { return web.asked.Load() > n+10 })
	s.Stop()
	s = askKept(t, web.URL, dir)
	s.Until("an answer", func(set watcher.Set) bool { return len(set.Inputs) == 1 && set.Inputs[0].FromDisk.IsZero() })
	again, err := os.Stat(filepath.Join(dir, "fleet", copyFile))
	if err != nil || !os.SameFile(written, again) {
		t.Errorf("written again: %v", err)
	}
}

func TestWhatWasKnownOfAnotherURLIsNotSentToIt(t *testing.T) {
	dir := t.TempDir()
	web := newWebServer(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" && r.URL.Path == "/new" {
			rw.WriteHeader(http.StatusNotModified)
			return
		}
		rw.Header().Set("ETag", `"1"`)
		text(podYAML("x", "v"+strings.TrimPrefix(r.URL.Path, "/")))(rw, r)
	})
	s := askKept(t, web.URL+"/old", dir)
	s.Wants("x=vold", model.InputAccepted)
	s.Stop()
	s = askKept(t, web.URL+"/new", dir)
	s.Wants("x=vnew", model.InputAccepted)
	if first := s.History()[0]; watchertest.Images(first) != "x=vold" {
		t.Errorf("until then: %+v", first)
	}
}

func TestOnlyAnAnswerThatIsVouchedForCountsAlsoFromDisk(t *testing.T) {
	dir := t.TempDir()
	envelope := func(key, payload string) http.HandlerFunc { return text(key + "\n" + payload) }
	web := newWebServer(t, envelope("good", podYAML("x", "v1")))
	verifiedBy := func(want string) func(*HTTPConfig) {
		return func(c *HTTPConfig) {
			c.Verify = func(_ context.Context, body, _ []byte) ([]byte, uint64, error) {
				key, payload, _ := strings.Cut(string(body), "\n")
				if key != want {
					return nil, 0, errors.New("nobody vouches for it")
				}
				return []byte(payload), 3, nil
			}
		}
	}
	s := askKept(t, web.URL, dir, verifiedBy("good"))
	s.Wants("x=v1", model.InputAccepted)
	web.answer(envelope("bad", podYAML("x", "v2")))
	set := s.Wants("x=v1", model.InputRefused)
	if !strings.Contains(set.Inputs[0].Errors[0], "nobody vouches for it") {
		t.Errorf("%+v", set.Inputs)
	}
	s.Stop()
	web.Close()
	if k, err := NewCopy(filepath.Join(dir, "fleet")).Load(); err != nil || k.Version != 3 {
		t.Errorf("%+v, %v", k, err)
	}
	askKept(t, web.URL, dir, verifiedBy("good")).Wants("x=v1", model.InputUnreachable)
	set = askKept(t, web.URL, dir, verifiedBy("another")).Until("a report", func(set watcher.Set) bool { return true })
	if !set.Unread || len(set.Pods) > 0 {
		t.Errorf("taken from disk without its key: %+v", set)
	}
}

func TestEveryKindIsHeldOverARestartAsItWas(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../manifests/decode/testdata/valid/*.yaml", "../../examples/*.yaml", "../../examples/*/*.yaml"} {
		found, err := filepath.Glob(pattern)
		watchertest.Must(t, err)
		files = append(files, found...)
	}
	var all []byte
	for _, file := range files {
		data, err := os.ReadFile(file)
		watchertest.Must(t, err)
		if c, err := partsLoader("fleet")(file, data); err == nil && len(c.Pods)+len(c.Objects)+len(c.Workloads) > 0 {
			all = append(append(all, "\n---\n"...), data...)
		}
	}
	was, _ := partsLoader("fleet")("all", all) // some share names
	if len(was.Pods) < 3 || len(was.Objects) < 3 || len(was.Workloads) < 1 {
		t.Fatalf("%d pods, %d objects, %d workloads are not enough", len(was.Pods), len(was.Objects), len(was.Workloads))
	}
	list, err := listOf(was)
	watchertest.Must(t, err)
	now, err := partsLoader("fleet")("all", list)
	watchertest.Must(t, err)
	if len(now.Pods) != len(was.Pods) || len(now.Objects) != len(was.Objects) || len(now.Workloads) != len(was.Workloads) {
		t.Fatalf("%d pods, %d objects, %d workloads", len(now.Pods), len(now.Objects), len(now.Workloads))
	}
	for i, p := range was.Pods {
		if podhash.Pod(p.Object) != podhash.Pod(now.Pods[i].Object) {
			t.Errorf("pod %s is another one", p.Key())
		}
	}
	for i, o := range slices.Concat(was.Objects, was.Workloads) {
		if n := slices.Concat(now.Objects, now.Workloads)[i]; !reflect.DeepEqual(o.Object, n.Object) {
			t.Errorf("%s is another one: %s", o, cmp.Diff(o.Object, n.Object))
		}
	}
}

// With its defaults, in JSON, content may be larger than an input may be.
func TestWhatCountsIsReadInPartsThatAreNoLargerThanAnInput(t *testing.T) {
	const most = 2000
	load, calls := partsLoader("fleet"), 0
	s := NewRemote(RemoteConfig{Name: "fleet", Input: "u", Load: func(input string, data []byte) (*manifests.Content, error) {
		if calls++; len(data) > 2*most {
			return nil, errors.New("too large")
		}
		return load(input, data)
	}})
	text := "---\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: c}\n"
	for i := range 20 {
		text += podYAML(fmt.Sprint("p", i), "v1")
	}
	was, err := load("u", []byte(text))
	watchertest.Must(t, err)
	data, err := listOf(was)
	watchertest.Must(t, err)
	got, err := s.loadList(data, most)
	if err != nil || len(data) < 2*most || calls < 3 || !slices.Equal(watcher.Keys(got.Pods), watcher.Keys(was.Pods)) || len(got.Objects) != 1 {
		t.Errorf("%d bytes in %d parts: %+v, %v", len(data), calls, got, err)
	}
	if got, err := s.loadList(data, watcher.MaxInput); err == nil || got != nil {
		t.Errorf("a part that is refused as a whole: %+v", got)
	}
}

func TestARefusedAnswerIsJudgedAnewAfterAnotherOneWasAccepted(t *testing.T) {
	s := NewRemote(RemoteConfig{Name: "fleet", Input: "u", Load: partsLoader("fleet"), Atomic: true})
	fixed := func(v string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\nimmutable: true\ndata: {v: \"" + v + "\"}\n"
	}
	for i, step := range []struct {
		body    string
		refused bool
	}{{fixed("1"), false}, {fixed("2"), true}, {fixed("2"), true}, {podYAML("x", "v1"), false}, {fixed("2"), false}} {
		if err := s.take(t.Context(), &Answer{Body: []byte(step.body)}); (err != nil) != step.refused {
			t.Errorf("answer %d: %v", i+1, err)
		}
	}
}

func TestTheReasonsOfAHostileAnswerAreBounded(t *testing.T) {
	s := NewRemote(RemoteConfig{Name: "fleet", Input: "u", Load: partsLoader("fleet")})
	many := strings.Repeat("---\nkind: X\n", 300)
	s.note(s.take(t.Context(), &Answer{Body: []byte(podYAML("x", "v1") + many)}))
	got := s.set.Inputs[0].Errors
	if len(got) != watcher.MaxReasons+1 || got[watcher.MaxReasons] != "and 200 more" || watchertest.Images(s.set) != "x=v1" {
		t.Errorf("%d reasons, the last is %q; pods %s", len(got), got[len(got)-1], watchertest.Images(s.set))
	}
}

func TestAPlaceMaySayWhenToAskAgain(t *testing.T) {
	f := newHTTPFetcher(HTTPConfig{Now: func() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }}, "u")
	s := NewRemote(RemoteConfig{Name: "fleet", Fetcher: f})
	for header, want := range map[string]time.Duration{
		"": time.Second, "soon": time.Second, "0": time.Second, "90": 90 * time.Second, "999999": longestLater,
		"Sat, 21 Nov 2026 12:02:00 GMT": 2 * time.Minute, "Sat, 21 Nov 2026 11:00:00 GMT": time.Second,
	} {
		s.failures = 0
		s.note(f.notOK(&http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {header}}}))
		if got := s.delay(); got != want {
			t.Errorf("Retry-After %q: pause %v, want %v", header, got, want)
		}
	}
	s.note(f.notOK(&http.Response{StatusCode: 500, Header: http.Header{"Retry-After": {"90"}}}))
	if got := s.delay(); got != 2*time.Second {
		t.Errorf("an error that is no request to wait: pause %v", got)
	}
}

func TestAnAnswerWithAMistakeStaysOneWhenNothingHasChanged(t *testing.T) {
	bad := strings.Replace(podYAML("b", "v1"), "image:", "imige:", 1)
	web := newWebServer(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"1"` {
			rw.WriteHeader(http.StatusNotModified)
			return
		}
		rw.Header().Set("ETag", `"1"`)
		text(podYAML("a", "v1")+bad)(rw, r)
	})
	s := askKept(t, web.URL, t.TempDir())
	s.Wants("a=v1", model.InputRefused)
	n := web.asked.Load()
	s.WaitFor("five more requests", func() bool { return web.asked.Load() > n+5 })
	if sets := s.History(); len(sets) != 1 || sets[0].Inputs[0].State != model.InputRefused {
		t.Errorf("%d sets: %+v", len(sets), sets[len(sets)-1])
	}
}
