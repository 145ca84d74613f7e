package view

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/daemontest/clitest"
	"monopod/internal/model"
	"monopod/internal/program"
	"monopod/node/budget"
	"monopod/node/localapi"
	"monopod/node/localclient"
)

// standIn is a daemon that has these answers by path, without their queries.
func standIn(t *testing.T, answers map[string]any) func(args ...string) clitest.Result {
	t.Helper()
	socket := clitest.ServeOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if events, several := answer.([]localclient.PodEvent); several {
			for _, e := range events {
				_ = json.NewEncoder(w).Encode(e)
			}
			return
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	return func(args ...string) clitest.Result {
		r := clitest.Commands(commands).Run(t.Context(), &clitest.Process{Program: &program.Program{}}, append(args, "--socket", socket)...)
		r.Stdout = clitest.Narrow(r.Stdout)
		return r
	}
}

func TestStatusShowsAllThatTheDaemonTells(t *testing.T) {
	t.Parallel()
	a := localapi.Agent{
		Agent:  budget.Cost{Processes: 1, ResidentBytes: 40 << 20, WakeUps: 7200, WrittenBytes: 10 << 20, Running: 2 * time.Hour},
		Cgroup: "/monopod-agent", Budget: budget.Limits{Memory: 96 << 20, MilliCPU: 500}, MemoryLimitBytes: 72 << 20,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue, Message: "little is free", LastTransitionTime: metav1.NewTime(time.Now().Add(-3 * time.Hour))}},
		Warnings:   []string{"a file cannot be read"},
	}
	run := standIn(t, map[string]any{"/apis/monopod.dev/v1alpha1/agents/self/costs": &a})
	want := "          PROCESSES  MEMORY  WAKE-UPS/H  WRITTEN  WRITTEN/H  AGE\n" +
		"monopod  1  40.0 MiB  3600  10.0 MiB  5.0 MiB  120m\n" +
		"shims  0  0.0 MiB  0  0.0 MiB  0.0 MiB  -\n" +
		"\nmonopod runs in cgroup /monopod-agent, with 96.0 MiB of memory and 0.50 processors.\n" +
		"\nCONDITION  STATUS  SINCE  MESSAGE\nMemoryPressure  True  3h  little is free\n" +
		"\nwarning: a file cannot be read\n" +
		"\nThe memory target of its garbage collector is 72.0 MiB (agentMemoryBudget, or GOMEMLIMIT).\n"
	if got := run("status"); got != clitest.Printed(want, "", 0) {
		t.Errorf("%+v\nwant\n%s", got, want)
	}
	a = localapi.Agent{PID: 4711}
	if got := run("status"); strings.Contains(got.Stdout, "CONDITION") || strings.Contains(got.Stdout, "cgroup") || got.Code != 0 {
		t.Errorf("nothing is limited: %+v", got)
	}
	if got := run("status", "-o", "yaml"); !strings.Contains(got.Stdout, "pid: 4711\n") || got.Code != 0 {
		t.Errorf("%+v", got)
	}
	if got := run("status", "-o", "wide"); got.Code != program.ExitUsage {
		t.Errorf("%+v", got)
	}
}

// podNamed is a pod with a label and a running container.
func podNamed(name string) corev1.Pod {
	return corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}},
	}
}

// TestGetPodsTellsWhyPodsWait: on stderr, so that programs read the table alone.
func TestGetPodsTellsWhyPodsWait(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	answers := map[string]any{"/apis/monopod.dev/v1alpha1/podreports": corev1.PodList{Items: []corev1.Pod{podNamed("web")}}, "/apis/monopod.dev/v1alpha1/agents/self/sources": []model.Input{}}
	run := standIn(t, answers)
	for _, c := range []struct {
		s    localapi.Schedule
		want string
	}{
		{localapi.Schedule{}, ""},
		{localapi.Schedule{ShuttingDown: true, Drained: true}, "\nThis machine is shutting down: pods are being stopped.\n"},
		{localapi.Schedule{Drained: true, Cordoned: true}, "\nThis machine is drained: `monopod undrain` lets pods run again.\n"},
		{localapi.Schedule{Drained: true, Since: since}, "\nThis machine is drained since " + since.Format(time.RFC3339) + ": `monopod undrain` lets pods run again.\n"},
		{localapi.Schedule{Cordoned: true, Since: since}, "\nThis machine is cordoned since " + since.Format(time.RFC3339) + ": new pods wait for `monopod uncordon`.\n"},
	} {
		answers["/apis/monopod.dev/v1alpha1/agents/self/drain"] = c.s
		if got := run("get", "pods"); got.Stderr != c.want || got.Code != 0 || !strings.Contains(got.Stdout, "default  web  1/1  Running") {
			t.Errorf("%+v: %+v", c.s, got)
		}
		if got := run("get", "pods", "-o", "name"); got != clitest.Printed("pod/web\n", "", 0) {
			t.Errorf("%+v", got)
		}
	}
	delete(answers, "/apis/monopod.dev/v1alpha1/agents/self/drain") // a daemon of an older release
	answers["/apis/monopod.dev/v1alpha1/agents/self/sources"] = []model.Input{
		{Source: "file", State: model.InputAccepted, Input: "/m/good.yaml"},
		{Source: "file", State: model.InputRefused, Input: "/m/bad.yaml", Errors: []string{"/m/bad.yaml:3: unknown field", "more"}},
		{Source: "http", State: model.InputUnreachable, Input: "http://h/"},
	}
	got := run("get", "pods", "-l", "app=nothing")
	if got.Stdout != "" || got.Code != 0 || !strings.HasPrefix(got.Stderr, "No pods found.\n") {
		t.Errorf("%+v", got)
	}
	for _, want := range []string{"  Refused /m/bad.yaml:3: unknown field\n", "  Unreachable http://h/\n"} {
		if !strings.Contains(got.Stderr, want) || strings.Contains(got.Stderr, "good.yaml") {
			t.Errorf("no %q in %s", want, got.Stderr)
		}
	}
}

func TestGetSourcesInEachForm(t *testing.T) {
	t.Parallel()
	answers := map[string]any{"/apis/monopod.dev/v1alpha1/agents/self/sources": nil}
	run := standIn(t, answers)
	if got := run("get", "sources"); got != clitest.Printed("", "No sources found.\n", 0) {
		t.Errorf("%+v", got)
	}
	if got := run("get", "sources", "-o", "json"); got != clitest.Printed("[]\n", "", 0) {
		t.Errorf("a program gets a list: %+v", got)
	}
	answers["/apis/monopod.dev/v1alpha1/agents/self/sources"] = []model.Input{{Source: "file", State: model.InputRefused, Input: "/m/bad.yaml", Errors: []string{"/m/bad.yaml:3: unknown field"}}}
	row := "file  Refused  <unknown>  0  /m/bad.yaml\n    /m/bad.yaml:3: unknown field\n"
	for args, want := range map[string]string{"": "SOURCE  STATE  AGE  PODS  INPUT\n" + row, "--no-headers": row, "-o name": "/m/bad.yaml\n"} {
		if got := run(append([]string{"get", "sources"}, strings.Fields(args)...)...); got != clitest.Printed(want, "", 0) {
			t.Errorf("%s: %+v", args, got)
		}
	}
	for _, args := range []string{"-o jsonpath={.x}", "-w", "-l a=b", "file"} {
		if got := run(append([]string{"get", "sources"}, strings.Fields(args)...)...); got.Code != program.ExitUsage || got.Stdout != "" {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

func TestWatchedPodsAreThoseThatAreChosen(t *testing.T) {
	t.Parallel()
	run := standIn(t, map[string]any{"/apis/monopod.dev/v1alpha1/podreports": []localclient.PodEvent{
		{Type: "ADDED", Object: podNamed("web")}, {Type: "ADDED", Object: podNamed("db")}, {Type: "DELETED", Object: podNamed("web")},
	}})
	for args, want := range map[string][]string{
		"":                    {"NAMESPACE  NAME", "default  web  1/1  Running", "default  db  1/1  Running", "default  web  1/1  Deleted"},
		"--no-headers":        {"default  web  1/1  Running", "default  db  1/1  Running", "default  web  1/1  Deleted"},
		"-l app=db":           {"NAMESPACE  NAME", "default  db  1/1  Running"},
		"-o name":             {"pod/web", "pod/db", "pod/web"},
		"-l app!=web -o name": {"pod/db"},
	} {
		lines := strings.Split(strings.TrimSuffix(run(append([]string{"get", "pods", "-w"}, strings.Fields(args)...)...).Stdout, "\n"), "\n")
		if len(lines) != len(want) {
			t.Errorf("%s: %q", args, lines)
			continue
		}
		for i, l := range lines {
			if !strings.HasPrefix(l, want[i]) {
				t.Errorf("%s: line %d is %q, want %q", args, i, l, want[i])
			}
		}
	}
}

func TestAmountsInTables(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range [][2]string{
		{milliCores(0), "0m"},
		{milliCores(1), "1m"},
		{milliCores(1_000_000), "1m"},
		{milliCores(1_500_000_001), "1501m"},
		{mebiBytes(1<<20 - 1), "0Mi"},
		{mebiBytes(3 << 30), "3072Mi"},
		{percent(1, 3), "33%"},
		{percent(1, 0), "<unknown>"},
		{SinceText(time.Time{}, now), "<unknown>"},
		{SinceText(now.Add(-90*time.Minute), now), "90m"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s, want %s", c[0], c[1])
		}
	}
}
