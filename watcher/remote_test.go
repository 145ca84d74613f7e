package watcher

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod/manifests"
)

// partsLoader reads real manifests, object by object.
func partsLoader(source string) Loader {
	return func(input string, data []byte) (*manifests.Content, error) {
		return manifests.LoadParts(input, data, manifests.Options{Source: source, Policy: manifests.Policy{PodSecurity: "privileged"}})
	}
}

// podYAML is a manifest of a pod; the image tells the version.
func podYAML(name, image string) string {
	return "---\napiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: c, image: " + image + "}]}\n"
}

// images prints the pods of a set as "name=image".
func images(set Set) string {
	var all []string
	for _, p := range set.Pods {
		all = append(all, p.Object.Name+"="+p.Object.Spec.Containers[0].Image)
	}
	return strings.Join(all, " ")
}

// askKept starts a source with a copy in dir, as a fresh process would.
func askKept(t *testing.T, address, dir string, change ...func(*HTTPConfig)) *stand {
	t.Helper()
	cfg := HTTPConfig{Name: "fleet", URL: address, CheckFrequency: 2 * time.Millisecond, Load: partsLoader("fleet"), Copy: NewCopy(filepath.Join(dir, "fleet"))}
	for _, f := range change {
		f(&cfg)
	}
	return startSource(t, NewHTTPSource(cfg))
}

func (s *stand) wants(pods string, state ReportState) Set {
	s.t.Helper()
	return s.until(pods+" "+string(state), func(set Set) bool {
		return images(set) == pods && len(set.Reports) == 1 && set.Reports[0].State == state
	})
}

func TestPodsStartFromTheCopyOnDiskBeforeTheServerIsAsked(t *testing.T) {
	dir := t.TempDir()
	web := newWebServer(t, text(podYAML("x", "v1")+podYAML("z", "v1")))
	s := askKept(t, web.URL, dir)
	s.wants("x=v1 z=v1", Accepted)
	s.stop()
	address := web.URL
	web.Close()

	offline := askKept(t, address, dir)
	offline.wants("x=v1 z=v1", Unreachable)
	first := offline.history()[0]
	if images(first) != "x=v1 z=v1" || first.Unread || first.Reports[0].State != Accepted || first.Reports[0].FromDisk.IsZero() {
		t.Errorf("before it is asked: %+v", first)
	}
	last, _ := offline.last()
	why := strings.Join(last.Reports[0].Errors, "\n")
	if last.Reports[0].FromDisk.IsZero() || !strings.Contains(why, "connection refused") || !strings.Contains(why, "copy on disk of the answer of 20") || !strings.Contains(why, "less than a minute old") {
		t.Errorf("report %+v", last.Reports[0])
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
	s.wants("x=v1", Accepted)
	s.stop()
	again := askKept(t, web.URL, dir)
	set := again.until("an answer", func(set Set) bool { return len(set.Reports) == 1 && set.Reports[0].FromDisk.IsZero() })
	if images(set) != "x=v1" || set.Reports[0].State != Accepted || len(set.Reports[0].Errors) > 0 {
		t.Errorf("%+v", set)
	}
}

func TestOneBadObjectKeepsItsLastGoodContentAlsoOverARestart(t *testing.T) {
	dir := t.TempDir()
	web := newWebServer(t, text(podYAML("a", "v1")+podYAML("b", "v1")+podYAML("c", "v1")))
	s := askKept(t, web.URL, dir)
	s.wants("a=v1 b=v1 c=v1", Accepted)
	web.answer(text(podYAML("a", "v2") + strings.Replace(podYAML("b", "v2"), "image:", "imige:", 1)))
	set := s.wants("a=v2 b=v1", Refused)
	if why := strings.Join(set.Reports[0].Errors, "\n"); !strings.Contains(why, "pod default/b") || !strings.Contains(why, "imige") || set.Unread {
		t.Errorf("%+v", set)
	}
	s.neverWithout("b")
	s.stop()
	web.Close()

	offline := askKept(t, web.URL, dir)
	offline.wants("a=v2 b=v1", Unreachable)
	if first := offline.history()[0]; images(first) != "a=v2 b=v1" || first.Unread || first.Reports[0].State != Refused {
		t.Errorf("from disk: %+v", first)
	}
	before, after := set.Pods[1], offline.history()[0].Pods[1]
	if manifests.PodHash(before.Object) != manifests.PodHash(after.Object) {
		t.Errorf("the pod that was held is another one after the restart")
	}
}

func TestAnAtomicSourceRefusesAnAnswerWithAMistakeAsAWhole(t *testing.T) {
	web := newWebServer(t, text(podYAML("a", "v1")+podYAML("b", "v1")))
	s := askKept(t, web.URL, t.TempDir(), func(c *HTTPConfig) { c.Atomic = true })
	s.wants("a=v1 b=v1", Accepted)
	web.answer(text(podYAML("a", "v2") + "---\nkind: Pod\n"))
	s.wants("a=v1 b=v1", Refused)
}
