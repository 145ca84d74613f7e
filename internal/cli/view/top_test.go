package view

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
)

// used is what something uses, in thousandths of a processor and mebibytes.
func used(cpu, memory uint64) (*statsapi.CPUStats, *statsapi.MemoryStats) {
	nano, set := cpu*1_000_000-1, memory<<20+1 // rounded up, and down
	return &statsapi.CPUStats{UsageNanoCores: &nano}, &statsapi.MemoryStats{WorkingSetBytes: &set}
}

func usage() statsapi.Summary {
	pod := func(namespace, name string, containers ...uint64) statsapi.PodStats {
		p := statsapi.PodStats{PodRef: statsapi.PodReference{Namespace: namespace, Name: name}}
		var cpu, memory uint64
		for i := 0; i < len(containers); i += 2 {
			c := statsapi.ContainerStats{Name: string(rune('z' - i/2))}
			c.CPU, c.Memory = used(containers[i], containers[i+1])
			cpu, memory = cpu+containers[i], memory+containers[i+1]
			p.Containers = append(p.Containers, c)
		}
		p.CPU, p.Memory = used(cpu, memory)
		return p
	}
	s := statsapi.Summary{Node: statsapi.NodeStats{NodeName: "n1"}, Pods: []statsapi.PodStats{
		pod("default", "web", 1, 300, 20, 4), pod("default", "db", 1500, 2000), pod("other", "web", 3, 1),
	}}
	s.Pods = append(s.Pods, statsapi.PodStats{PodRef: statsapi.PodReference{Namespace: "other", Name: "new"}}) // of which nothing is known yet
	s.Node.CPU, s.Node.Memory = used(uint64(runtime.NumCPU())*250+1, 1000)
	rest := uint64(3000 << 20)
	s.Node.Memory.AvailableBytes = &rest
	return s
}

func TestTop(t *testing.T) {
	t.Parallel()
	socket := clitest.ServeOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/stats/summary?only_cpu_and_memory=true" {
			t.Errorf("%s is asked for", r.URL)
		}
		_ = json.NewEncoder(w).Encode(usage())
	}))
	const podHead, containerHead = "NAMESPACE NAME CPU(cores) MEMORY(bytes)\n", "NAMESPACE POD NAME CPU(cores) MEMORY(bytes)\n"
	for args, want := range map[string]clitest.Result{
		"pods":                      {Stdout: podHead + "default db 1500m 2000Mi\ndefault web 21m 304Mi\nother new 0m 0Mi\nother web 3m 1Mi\n"},
		"pods --sort-by memory":     {Stdout: podHead + "default db 1500m 2000Mi\ndefault web 21m 304Mi\nother web 3m 1Mi\nother new 0m 0Mi\n"},
		"po -n other --sort-by cpu": {Stdout: podHead + "other web 3m 1Mi\nother new 0m 0Mi\n"},
		"pod web":                   {Stdout: podHead + "default web 21m 304Mi\n"},
		"pod other/web":             {Stdout: podHead + "other web 3m 1Mi\n"},
		"pod/db --containers":       {Stdout: containerHead + "default db z 1500m 2000Mi\n"},
		"containers":                {Stdout: containerHead + "default db z 1500m 2000Mi\ndefault web y 20m 4Mi\ndefault web z 1m 300Mi\nother web z 3m 1Mi\n"},
		"containers web":            {Stdout: containerHead + "default web y 20m 4Mi\ndefault web z 1m 300Mi\n"},
		"pods -n none":              {Stderr: "No pods found.\n"},
		"pod gone":                  {Stderr: "monopod: pod default/gone is not running\n", Code: 1},
		"node":                      {Stdout: "NAME CPU(cores) CPU(%) MEMORY(bytes) MEMORY(%)\nn1 N 25% 1000Mi 25%\n"},
		"node x":                    {Stderr: "monopod: top node takes neither NAME nor --containers\nsee `monopod top --help`\n", Code: 2},
		"deployments x":             {Stderr: "monopod: unknown resource \"deployments\"\nsee `monopod top --help`\n", Code: 2},
		"pods --sort-by age":        {Stderr: "monopod: cannot sort by \"age\"; one of cpu, memory\nsee `monopod top --help`\n", Code: 2},
	} {
		p := &clitest.Process{Program: &program.Program{}}
		var out, errs bytes.Buffer
		p.Stdout, p.Stderr = &out, &errs
		code := commands(t.Context(), p, append([]string{"top", "--socket", socket}, strings.Fields(args)...))
		got := clitest.Printed(regexp.MustCompile(` +`).ReplaceAllString(out.String(), " "), errs.String(), code)
		if args == "node" {
			got.Stdout = regexp.MustCompile(`n1 \d+m`).ReplaceAllString(got.Stdout, "n1 N")
		}
		if got != want {
			t.Errorf("%s:\n%+v, want\n%+v", args, got, want)
		}
	}
	// With --watch it runs until interrupted.
	ctx, stop := context.WithCancel(t.Context())
	p := &clitest.Process{Program: &program.Program{Stderr: io.Discard}}
	p.Stdout = writerFunc(func(b []byte) (int, error) { stop(); return len(b), nil })
	if code := commands(ctx, p, []string{"top", "node", "-w", "--socket", socket}); code != 0 {
		t.Error(code)
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }
