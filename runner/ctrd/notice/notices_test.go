package notice

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner/ctrd/embed/guard"
	"monopod/runner/ctrd/logs"
	"monopod/runner/ctrd/network"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/taskwatch"
)

// events is a runner.Recorder: what, reason and message of each event.
type events []string

// Event implements runner.Recorder.
func (e *events) Event(object corev1.ObjectReference, eventType, reason, message string) {
	*e = append(*e, object.Kind+" "+object.Name+" "+object.FieldPath+" "+eventType+" "+reason+": "+message)
}

// testNotices has the pods web, host (on the host network) and gone (being removed); web has the containers init and c.
func testNotices() (*Notices, *events) {
	x := record.NewIndex()
	for name, state := range map[string]record.SandboxState{"web": record.Active, "host": record.Active, "gone": record.Removing} {
		pod := &manifests.Pod{Object: &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: name == "host", InitContainers: []corev1.Container{{Name: "init"}}}}}
		x.PutSandbox(&record.Sandbox{ID: name, Pod: pod, Meta: record.SandboxMeta{Key: manifests.Key{Namespace: "default", Name: name}, State: state}})
	}
	for _, name := range []string{"init", "c"} {
		x.PutContainer(&record.Container{ID: name, Meta: record.ContainerMeta{Key: manifests.Key{Namespace: "default", Name: "web"}, Name: name, SandboxID: "web"}})
	}
	e := &events{}
	return &Notices{Index: x, Recorder: e, NodeName: "node", Watch: taskwatch.New(), Log: slog.New(slog.DiscardHandler)}, e
}

func TestEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		report func(*Notices)
		want   []string
	}{
		"one pod's network": {
			func(r *Notices) { r.NetworkNotice(network.Notice{Sandbox: "web", Damage: "no route"}) },
			[]string{"Pod web  Normal NetworkRepaired: the pod network was damaged and has been repaired: no route"},
		},
		"the network of all pods": {
			func(r *Notices) { r.NetworkNotice(network.Notice{Damage: "no bridge", Err: errors.New("why")}) },
			[]string{
				"Node node  Warning NetworkDamaged: the pod network is damaged: no bridge: why",
				"Pod web  Warning NetworkDamaged: the pod network is damaged: no bridge: why",
			},
		},
		"the network of a removed pod": {func(r *Notices) { r.NetworkNotice(network.Notice{Sandbox: "gone", Damage: "x"}) }, nil},
		"lost output": {
			func(r *Notices) {
				r.LogNotice(logs.Notice{Kind: logs.Dropping, Container: "init", Err: errors.New("disk full")})
			},
			[]string{"Pod web spec.initContainers{init} Warning LogsDropped: the output of container init is dropped: disk full"},
		},
		"output again": {
			func(r *Notices) { r.LogNotice(logs.Notice{Kind: logs.Resumed, Container: "c", Lines: 3}) },
			[]string{"Pod web spec.containers{c} Normal LogsResumed: the output of container c is logged again; 3 lines are missing"},
		},
		"output of a removed container": {func(r *Notices) { r.LogNotice(logs.Notice{Kind: logs.Resumed, Container: "gone"}) }, nil},
		"removed logs": {
			func(r *Notices) { r.LogNotice(logs.Notice{Kind: logs.Trimmed, Files: 2, Bytes: 9}) },
			[]string{"Node node  Normal LogsTrimmed: 2 log files (9 bytes) were removed: the total size of logs exceeds podLogsMaxSize"},
		},
		"a repaired image": {
			func(r *Notices) { r.DamageNotice("app", "a blob", nil) },
			[]string{"Node node  Normal ImageRepaired: image app was damaged and is repaired: a blob"},
		},
		"a damaged image": {
			func(r *Notices) { r.DamageNotice("app", "a blob", errors.New("no registry")) },
			[]string{"Node node  Warning ImageDamaged: image app is damaged: a blob: no registry"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, e := testNotices()
			tt.report(r)
			if !slices.Equal(*e, tt.want) {
				t.Errorf("got %q, want %q", *e, tt.want)
			}
			r.Recorder = nil
			tt.report(r)
			if len(*e) != len(tt.want) {
				t.Error("events without a recorder")
			}
		})
	}
}

func TestDatabaseEvents(t *testing.T) {
	r, e := testNotices()
	repairs := []guard.Repair{{Path: "meta.db", Cause: errors.New("x"), Copy: "copy", Current: true}, {Path: "meta.db", Cause: errors.New("x")}}
	for _, d := range repairs {
		r.DatabaseNotice(d)
	}
	if want := []string{"Node node  Warning DatabaseRestored: " + repairs[0].String(), "Node node  Warning DatabaseLost: " + repairs[1].String()}; !slices.Equal(*e, want) {
		t.Errorf("got %q", *e)
	}
	if len(r.Repaired) != 2 {
		t.Errorf("%d repairs are kept", len(r.Repaired))
	}
}
