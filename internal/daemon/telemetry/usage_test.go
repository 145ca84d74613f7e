package telemetry

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/stats"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// measured is a runtime with one running and one stopped pod.
type measured struct{ began time.Time }

var errWalk = errors.New("a directory cannot be read")

func (m measured) Places(context.Context) ([]model.Place, error) {
	running := []model.ContainerPlace{{Name: "c", Image: "busybox:1"}, {Name: "d", Image: "busybox:2"}}
	return []model.Place{{Key: runtimetest.KeyOf("web"), UID: "u", Created: m.began, Containers: running}, {Key: runtimetest.KeyOf("done")}}, nil
}

func (measured) MeasureDisk(_ context.Context, key manifests.Key) (runner.DiskSizes, error) {
	if key.Name != "web" {
		return runner.DiskSizes{}, errWalk
	}
	return runner.DiskSizes{
		Volumes: map[string]runner.Size{"data": {Bytes: 1, Inodes: 2}, "tmp": {Bytes: 3}}, InMemory: map[string]bool{"tmp": true},
		Layers: map[string]runner.Size{"c": {Bytes: -5, Inodes: -1}}, Logs: map[string]runner.Size{"c": {Bytes: 7}}, Others: runner.Size{Bytes: 9, Inodes: 1},
	}, nil
}

func (measured) ContainerdVersion() string { return "2.1" }

func TestUsageIsThatOfTheOpenRuntime(t *testing.T) {
	var u Usage
	web, began := model.Place{Key: runtimetest.KeyOf("web")}, time.Unix(1e9, 0)
	none := func(when string) {
		t.Helper()
		_, errPlaces := u.Places(t.Context())
		_, errDisk := u.MeasureDisk(t.Context(), web)
		_, errRunning := u.Running(t.Context())
		if !errors.Is(errPlaces, errNoRuntime) || !errors.Is(errDisk, errNoRuntime) || !errors.Is(errRunning, errNoRuntime) || u.ContainerdVersion() != "" {
			t.Errorf("%s: %v, %v, %v, %q", when, errPlaces, errDisk, errRunning, u.ContainerdVersion())
		}
	}
	none("before")
	detach := u.Attach(measured{began})
	if all, err := u.Places(t.Context()); err != nil || len(all) != 2 || u.ContainerdVersion() != "2.1" {
		t.Errorf("%v, %v, %q", all, err, u.ContainerdVersion())
	}
	got, err := u.MeasureDisk(t.Context(), web)
	want := stats.PodDisk{
		Volumes: map[string]stats.DiskUse{"data": {Bytes: 1, Inodes: 2}, "tmp": {Bytes: 3}}, Memory: map[string]bool{"tmp": true},
		Layers: map[string]stats.DiskUse{"c": {}}, Logs: map[string]stats.DiskUse{"c": {Bytes: 7}}, Others: stats.DiskUse{Bytes: 9, Inodes: 1}, // no size is below zero
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := u.MeasureDisk(t.Context(), model.Place{Key: runtimetest.KeyOf("done")}); !errors.Is(err, errWalk) {
		t.Errorf("error %v", err)
	}
	detach()
	none("after")
}

func TestPodsThatRunHaveContainersThatRun(t *testing.T) {
	var u Usage
	began := time.Unix(1e9, 0)
	defer u.Attach(measured{began})()
	pods, err := u.Running(t.Context())
	if err != nil || len(pods) != 1 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	p := pods[0]
	if p.Namespace != "default" || p.Name != "web" || p.UID != types.UID("u") || !p.CreationTimestamp.Time.Equal(began) {
		t.Errorf("%+v", p.ObjectMeta)
	}
	if c := p.Spec.Containers; len(c) != 2 || c[0].Name != "c" || c[0].Image != "busybox:1" || c[1].Image != "busybox:2" {
		t.Errorf("%+v", c)
	}
}

func TestACollectorNeedsTheCgroupsOfTheMachine(t *testing.T) {
	lost := errors.New("no cgroups are mounted")
	if c, err := NewCollector(&config.Config{}, func() (stats.Hierarchies, error) { return stats.Hierarchies{}, lost }, &Usage{}); c != nil || !errors.Is(err, lost) {
		t.Errorf("%v, %v", c, err)
	}
	c, err := NewCollector(&config.Config{CgroupRoot: "/pods"}, func() (stats.Hierarchies, error) { return stats.Hierarchies{}, nil }, &Usage{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pods(t.Context(), stats.Options{}); !errors.Is(err, errNoRuntime) {
		t.Errorf("without a runtime: %v", err)
	}
}
