package localapi

import (
	"encoding/json"
	"net/url"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/node/budget"
	"monopod/node/events"
)

// TestJSONOfEachBody: clients and daemons of several versions talk to each other, and scripts read the answers with curl and jq.
// What is empty is left out, unless it says something.
func TestJSONOfEachBody(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	below := int32(0)
	for _, tt := range []struct {
		body any
		want string
	}{
		{ApplyRequest{}, `{"files":null}`},
		{
			ApplyRequest{Files: []ManifestFile{{Name: "a.yaml", Content: []byte("a: b")}}, DryRun: true},
			`{"files":[{"name":"a.yaml","content":"YTogYg=="}],"dryRun":true}`,
		},
		{DeleteRequest{}, `{}`},
		{
			DeleteRequest{Files: []ManifestFile{{Name: "-"}}, Objects: []ObjectRef{{Kind: "Node", Name: "x"}, {Kind: "Pod", Namespace: "n", Name: "p"}}},
			`{"files":[{"name":"-","content":null}],"objects":[{"kind":"Node","name":"x"},{"kind":"Pod","namespace":"n","name":"p"}]}`,
		},
		{
			ApplyResult{Objects: []AppliedObject{{ObjectRef: ObjectRef{Kind: "Pod", Name: "p"}, Verdict: NotFound}}},
			`{"objects":[{"kind":"Pod","name":"p","verdict":"not found"}]}`,
		},
		{
			ApplyResult{Notes: []string{"n"}, Objects: []AppliedObject{{
				ObjectRef: ObjectRef{Kind: "Pod", Namespace: "n", Name: "p"}, Verdict: Configured, Warning: "w",
				Pods: []AppliedPod{{Namespace: "n", Name: "p", Manifest: "hash", Rollback: "why"}, {Namespace: "n", Name: "q"}},
			}}},
			`{"objects":[{"kind":"Pod","namespace":"n","name":"p","verdict":"configured",` +
				`"pods":[{"namespace":"n","name":"p","manifest":"hash","rollback":"why"},{"namespace":"n","name":"q"}],"warning":"w"}],"notes":["n"]}`,
		},
		{
			Agent{PID: 7, Version: "v1", Agent: budget.Cost{Processes: 1, ResidentBytes: 2, WakeUps: 3, Preemptions: 4, WrittenBytes: 5, Running: 6}},
			`{"pid":7,"version":"v1","agent":{"processes":1,"residentBytes":2,"wakeUps":3,"preemptions":4,"writtenBytes":5,"runningNanoseconds":6},` +
				`"shims":{"processes":0,"residentBytes":0,"wakeUps":0,"preemptions":0,"writtenBytes":0,"runningNanoseconds":0}}`,
		},
		{KubeconfigRequest{User: "u"}, `{"user":"u"}`},
		{
			KubeconfigRequest{User: "u", Groups: []string{"g"}, Namespace: "n", Server: "https://s"},
			`{"user":"u","groups":["g"],"namespace":"n","server":"https://s"}`,
		},
		{Kubeconfig{Kubeconfig: "k"}, `{"kubeconfig":"k"}`},
		{Written{}, `{}`},
		{Written{Warnings: []string{"a device"}}, `{"warnings":["a device"]}`},
		{PullRequest{Images: []string{"a"}}, `{"images":["a"]}`},
		{PullRequest{Images: []string{"a"}, IfNotPresent: true}, `{"images":["a"],"ifNotPresent":true}`},
		{PullEvent{Image: "a", State: PullPulling, Done: 1, Total: 2}, `{"image":"a","state":"Pulling","done":1,"total":2}`},
		{PullEvent{Image: "a", State: PullPulled, Digest: "d", Seconds: 0.5}, `{"image":"a","state":"Pulled","digest":"d","seconds":0.5}`},
		{PullEvent{Image: "a", State: PullFailed, Reason: "NotFound", Error: "404"}, `{"image":"a","state":"Failed","reason":"NotFound","error":"404"}`},
		{ImageRemoval{Images: []string{"a"}}, `{"images":["a"]}`},
		{ImageRemoval{Images: []string{"a"}, Force: true}, `{"images":["a"],"force":true}`},
		{
			ImagesRemoved{Images: []RemovedImage{{Image: "a", Digest: "d"}, {Image: "b", Error: "in use"}}},
			`{"images":[{"image":"a","digest":"d"},{"image":"b","error":"in use"}]}`,
		},
		{
			ImageList{Items: []Image{{Digest: "d", FirstSeen: at}}, Disk: ImageDisk{Capacity: 10, Available: 4, UsedPercent: 60, HighPercent: 85, LowPercent: 80}},
			`{"items":[{"digest":"d","size":0,"own":0,"firstSeen":"2026-01-02T03:04:05Z"}],` +
				`"disk":{"capacity":10,"available":4,"usedPercent":60,"highPercent":85,"lowPercent":80}}`,
		},
		{
			ImageList{Pulls: []model.Pull{{Image: "a", Since: at, Done: 1, Total: 2}}, Items: []Image{{
				Digest: "d", Names: []string{"a:1"}, RepoDigests: []string{"a@d"}, Size: 3, Own: 2, FirstSeen: at, LastUsed: at, UsedBy: []string{"n/p"},
				NeededBy: []ImageNeed{{Kind: "Manifest", By: "pod n/p"}, {Kind: "Undecided"}},
			}}},
			`{"items":[{"digest":"d","names":["a:1"],"repoDigests":["a@d"],"size":3,"own":2,"firstSeen":"2026-01-02T03:04:05Z","lastUsed":"2026-01-02T03:04:05Z",` +
				`"usedBy":["n/p"],"neededBy":[{"kind":"Manifest","by":"pod n/p"},{"kind":"Undecided"}]}],"pulls":[{"image":"a","since":"2026-01-02T03:04:05Z","done":1,"total":2}],` +
				`"disk":{"capacity":0,"available":0,"usedPercent":0,"highPercent":0,"lowPercent":0}}`,
		},
		{
			History{Namespace: "n", Name: "p", Wanted: 2, Active: 1, Rollback: "r", Update: "u", Warning: "w", Revisions: []Revision{
				{Number: 1, Outcome: "Ready", Source: "a.yaml:1", Accepted: at, Settled: at, Images: map[string]string{"c": "d"}, Manifest: json.RawMessage(`{"kind":"Pod"}`)},
				{Number: 2, Outcome: "Failed", Reason: "x", Source: "a.yaml:1", Accepted: at, Manifest: json.RawMessage(`{}`)},
			}},
			`{"namespace":"n","name":"p","wanted":2,"active":1,"rollback":"r","update":"u","revisions":[` +
				`{"number":1,"outcome":"Ready","source":"a.yaml:1","accepted":"2026-01-02T03:04:05Z","settled":"2026-01-02T03:04:05Z","images":{"c":"d"},"manifest":{"kind":"Pod"}},` +
				`{"number":2,"outcome":"Failed","reason":"x","source":"a.yaml:1","accepted":"2026-01-02T03:04:05Z","manifest":{}}],"warning":"w"}`,
		},
		{RollbackRequest{}, `{}`},
		{RollbackRequest{To: 3}, `{"to":3}`},
		{Schedule{}, `{"cordoned":false,"drained":false,"shuttingDown":false}`},
		{
			Schedule{Cordoned: true, Drained: true, PriorityBelow: &below, Ignore: []string{"n/*"}, UntilBoot: true, Since: at, ShuttingDown: true, Unseen: "no runtime", Stopping: []string{"n/p"}},
			`{"cordoned":true,"drained":true,"priorityBelow":0,"ignore":["n/*"],"untilBoot":true,"since":"2026-01-02T03:04:05Z","shuttingDown":true,"unseen":"no runtime","stopping":["n/p"]}`,
		},
		{DrainRequest{}, `{}`},
		{DrainRequest{PriorityBelow: &below, Ignore: []string{"n/*"}, UntilBoot: true}, `{"priorityBelow":0,"ignore":["n/*"],"untilBoot":true}`},
		{ScheduleEvent{Object: Schedule{Cordoned: true}}, `{"object":{"cordoned":true,"drained":false,"shuttingDown":false}}`},
	} {
		b, err := json.Marshal(tt.body)
		if err != nil || string(b) != tt.want {
			t.Errorf("%T: %v\n%s\nwant\n%s", tt.body, err, b, tt.want)
		}
		back := reflect.New(reflect.TypeOf(tt.body))
		if err := json.Unmarshal(b, back.Interface()); err != nil || !reflect.DeepEqual(back.Elem().Interface(), tt.body) {
			t.Errorf("%s is read as %+v, %v", b, back.Elem(), err)
		}
	}
}

// A change of an event is what kubectl calls a watch event.
func TestAChangeOfAnEventIsAWatchEvent(t *testing.T) {
	var got struct {
		Type   string
		Object struct{ Reason string }
	}
	b, err := json.Marshal(EventChange{Type: "ADDED", Object: corev1.Event{Reason: "Pulled"}})
	if err != nil || json.Unmarshal(b, &got) != nil || got.Type != "ADDED" || got.Object.Reason != "Pulled" {
		t.Errorf("%s, %v", b, err)
	}
	if Bookmark != "BOOKMARK" {
		t.Errorf("the end of what exists is %s", Bookmark)
	}
}

func TestPathsOfEvents(t *testing.T) {
	for want, tt := range map[string]struct {
		filter events.Filter
		query  url.Values
	}{
		"/apis/monopod.dev/v1alpha1/agents/self/events?":                                 {events.Filter{}, url.Values{}},
		"/apis/monopod.dev/v1alpha1/agents/self/events?kind=Pod&name=web&namespace=prod": {events.Filter{Kind: "Pod", Namespace: "prod", Name: "web"}, url.Values{}},
		"/apis/monopod.dev/v1alpha1/agents/self/events?name=a%26b%2Fc&watch=1":           {events.Filter{Name: "a&b/c"}, url.Values{"watch": {"1"}}},
	} {
		if got := EventsPath(tt.filter, tt.query); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestObjectsAreNamedAsByKubectl(t *testing.T) {
	for want, ref := range map[string]ObjectRef{
		"pod/web":               {Kind: "Pod", Namespace: "default", Name: "web"},
		"cronjob/tick in prod":  {Kind: "CronJob", Namespace: "prod", Name: "tick"},
		"persistentvolume/data": {Kind: "PersistentVolume", Name: "data"},
	} {
		if got := ref.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestARevisionIsFoundByItsNumber(t *testing.T) {
	h := &History{Revisions: []Revision{{Number: 4}, {Number: 6}}}
	if h.Revision(6) != &h.Revisions[1] || h.Revision(5) != nil || (&History{}).Revision(0) != nil {
		t.Errorf("%+v", h)
	}
}
