package main

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"monopod/events"
	"monopod/node/apiserver"
	"monopod/node/capacity"
)

func TestValuesAboutTheAPIServerThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "config.yaml"), `bootstrapKubeconfig: /x
registerWithTaints: [x, "x:Never", ":NoSchedule", "a=b:NoSchedule"]
nodeLeaseDurationSeconds: 0
nodeStatusUpdateFrequency: 10ms
eventBurst: 0
`)
	_, err := loadIn(dir, nil, nil)
	all, _ := errors.AsType[ConfigError](err)
	var keys []string
	for _, p := range all {
		keys = append(keys, p.Key)
	}
	want := "bootstrapKubeconfig registerWithTaints registerWithTaints registerWithTaints nodeLeaseDurationSeconds nodeStatusUpdateFrequency eventBurst"
	if got := strings.Join(keys, " "); got != want {
		t.Errorf("%s\n%v", got, err)
	}
}

// idleApp is an App that does not run.
func idleApp(t *testing.T) *App {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "config.yaml"), "rootDirectory: "+filepath.Join(dir, "root")+"\n")
	cfg, err := loadIn(dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return NewApp(cfg, slog.New(slog.DiscardHandler), machine{addresses: func() ([]string, error) { return []string{"192.0.2.1"}, nil }})
}

func TestWhatAnAPIServerDoesNotShowIsAnEvent(t *testing.T) {
	a := idleApp(t)
	a.reported(apiserver.Key{Namespace: "default", Name: "web"}, errors.New("it may not"))
	a.reported(apiserver.Key{}, errors.New("nobody answers"))
	a.reported(apiserver.Key{}, nil)
	var got []string
	for _, e := range a.events.List(events.Filter{}) {
		got = append(got, e.InvolvedObject.Kind+" "+e.Reason+": "+e.Message)
	}
	want := "Pod FailedMirrorPod: the API server does not show it: it may not\nNode APIServerUnreachable: this machine is not reported to the API server: nobody answers\nNode APIServerReachable: this machine is reported to the API server"
	if strings.Join(got, "\n") != want {
		t.Error(strings.Join(got, "\n"))
	}
}

func TestTheNodeHasWhatTheMachineHas(t *testing.T) {
	a := idleApp(t)
	a.machine.capacity, a.cfg.Port = capacity.Read, 10250
	if err := a.measure(); err != nil {
		t.Fatal(err)
	}
	facts := newNodeFacts(a).now()
	if facts.Capacity.Cpu().IsZero() || facts.Allocatable.Memory().IsZero() || facts.Info.KernelVersion == "" || facts.Info.ContainerRuntimeVersion == "containerd://" || facts.Conditions[0].Status != "False" || facts.Port != 10250 {
		t.Errorf("%+v", facts)
	}
	if pods, complete := (mirrored{a.board}).Pods(); complete || len(pods) > 0 {
		t.Errorf("it knows of pods: %v", pods)
	}
}
