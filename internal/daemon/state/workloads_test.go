package state

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/workload"
	"monopod/runner/workload/saved"
)

func jobDocument(name string) *manifests.Object {
	return &manifests.Object{
		Object: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}, Kind: "Job",
		Origin: manifests.Origin{Source: config.SourceFile, File: "/m/" + name + ".yaml"},
	}
}

// TestProgressOfARemovedJobIsForgotten: also what an expansion reports that began before.
func TestProgressOfARemovedJobIsForgotten(t *testing.T) {
	s := newStore()
	stays, goes, unread := jobDocument("stays"), jobDocument("goes"), jobDocument("unread")
	d := model.Desired{Order: []string{config.SourceFile}, Reported: map[string]bool{config.SourceFile: true}, Workloads: []*manifests.Object{stays, goes, unread}}
	results := map[string]string{"default/stays": "Complete", "default/goes": "Complete", "default/unread": "Complete"}
	progress := saved.State{Jobs: map[string]*saved.Job{"Job default/stays": {}, "Job default/goes": {}, "Job default/unread": {}}}
	report := func() {
		s.Workloads.SetResults(results, nil)
		s.Workloads.SetExpanded(progress, nil)
	}
	check := func(when string, want int) {
		t.Helper()
		now, _ := s.Workloads.Expanded()
		if ends := s.Workloads.Finished(); len(now.Jobs) != want || len(ends) != want || now.Jobs["Job default/stays"] == nil || ends["default/stays"] == "" {
			t.Errorf("%s: %v, %v", when, now.Jobs, ends)
		}
	}
	s.Publish(d)
	report()
	check("published", 3)
	d.Workloads = []*manifests.Object{stays}
	d.Unknown = map[string][]string{config.SourceFile: {unread.Origin.File}}
	s.Publish(d)
	check("removed", 2)
	report()
	check("reported again", 2)
	d.Workloads = []*manifests.Object{stays, jobDocument("goes")}
	s.Publish(d)
	report()
	check("created again", 2)
	if removed := s.Workloads.TakeRemoved(); len(removed) != 1 || !removed[goes.ID()] {
		t.Errorf("removed are %v", removed)
	}
	report()
	check("expanded", 3)
	if removed := s.Workloads.TakeRemoved(); len(removed) != 0 || len(progress.Jobs) != 3 || len(results) != 3 {
		t.Errorf("%v, %v, %v", removed, progress, results)
	}
}

func TestExpiredJobsAreAnnouncedOnce(t *testing.T) {
	w := newWorkloads(&Changes{})
	all, changed := w.Expired()
	if len(all) != 0 || len(changed) != 0 {
		t.Errorf("%v", all)
	}
	one := []workload.Expired{{Name: "j", TTL: int32(time.Minute / time.Second)}}
	for i, want := range []int{1, 0} {
		w.SetExpired(one)
		if all, changed = w.Expired(); len(all) != 1 || len(changed) != want {
			t.Errorf("step %d: %v, %d signals", i, all, len(changed))
		}
		for len(changed) > 0 {
			<-changed
		}
	}
}
