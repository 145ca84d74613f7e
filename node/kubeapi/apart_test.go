package kubeapi

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/monopodv1"
)

var (
	sourceKind = kinds.ByKind(monopodv1.SchemeGroupVersion.WithKind("Source"))
	imageKind  = kinds.ByKind(monopodv1.SchemeGroupVersion.WithKind("Image"))
)

const (
	allSources = "/apis/monopod.dev/v1alpha1/sources"
	allImages  = "/apis/monopod.dev/v1alpha1/images"
)

func source(name, verdict string) kinds.Object {
	o := &monopodv1.Source{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: monopodv1.SourceStatus{Verdict: verdict}}
	o.SetGroupVersionKind(sourceKind.GroupVersionKind)
	return o
}

func image(name string, size int64) kinds.Object {
	o := &monopodv1.Image{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, SizeBytes: size}
	o.SetGroupVersionKind(imageKind.GroupVersionKind)
	return o
}

// computes is what the state returns for a kind from now on.
func (m *memory) computes(k *kinds.Kind, objects ...kinds.Object) {
	m.change(func() { m.computed[k] = objects })
}

// TestKindsApartAreWatchedLikeOthers: they have their own revisions, which also begin with the epoch.
func TestKindsApartAreWatchedLikeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSite(t, Config{}, testPod("shop", "a", "web"))
		s.state.computes(sourceKind, source("a", "Accepted"), source("b", "Accepted"))
		names, version := s.list("", allSources)
		if len(names) != 2 || version != revision(1) {
			t.Fatal(names, version)
		}
		w := s.watch("", allSources, values("resourceVersion", version))
		defer w.close()
		bad := s.watch("", allSources, values("fieldSelector", "status.verdict=Refused"))
		defer bad.close()
		synctest.Wait()
		// The same content is no change, though the objects are other ones.
		s.state.computes(sourceKind, source("a", "Accepted"), source("b", "Refused"))
		w.expect("MODIFIED b@2")
		bad.expect("ADDED b@2")
		s.state.put(testPod("shop", "b", "web"))
		synctest.Wait()
		s.state.computes(sourceKind, source("b", "Refused"))
		w.expect("DELETED a@3")
		old := s.watch("", allSources, values("resourceVersion", "7"))
		defer old.close()
		old.expect("ERROR 410 Expired", "END")
		list := s.watch("", allSources, values("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true"))
		defer list.close()
		list.expect("ADDED b@2", "BOOKMARK @3 map[k8s.io/initial-events-end:true]")
	})
}

// TestWhatIsMeasuredIsLookedAtInIntervals: no event announces a new image.
func TestWhatIsMeasuredIsLookedAtInIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSite(t, Config{})
		s.state.computes(imageKind, image("a", 1))
		w := s.watch("", allImages, values())
		w.expect("ADDED a@1")
		s.state.computes(imageKind, image("a", 2))
		began := time.Now()
		w.expect("MODIFIED a@2")
		if took := time.Since(began); took != imageKind.Poll {
			t.Errorf("it took %v", took)
		}
		w.close()
		synctest.Wait() // its goroutine has ended, or the bubble would say so
	})
}

// TestKindsApartThatCannotBeSeen: that the images cannot be read does not mean that they are gone.
func TestKindsApartThatCannotBeSeen(t *testing.T) {
	s := serveSite(t, Config{})
	s.state.computes(imageKind)
	if got := s.status("", "GET", allImages); got != "503 ServiceUnavailable images are not available yet: no statistics yet" {
		t.Error(got)
	}
	s.state.computes(imageKind, image("a", 1))
	if names, _ := s.list("", allImages); len(names) != 1 {
		t.Error(names)
	}
	s.state.computes(imageKind)
	if names, _ := s.list("", allImages); len(names) != 1 {
		t.Error(names)
	}
	if code, _ := s.body("", "GET", allImages+"/a"); code != 200 {
		t.Error(code)
	}
	if code, _ := s.body("", "GET", allImages+"/b"); code != 404 {
		t.Error(code)
	}
}
