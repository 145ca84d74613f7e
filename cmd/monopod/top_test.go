package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/node"
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
	dir := t.TempDir()
	ln, err := node.Listen(dir + "/s")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/stats/summary?only_cpu_and_memory=true" {
			t.Errorf("%s is asked for", r.URL)
		}
		_ = json.NewEncoder(w).Encode(usage())
	})}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	const podHead, containerHead = "NAMESPACE NAME CPU(cores) MEMORY(bytes)\n", "NAMESPACE POD NAME CPU(cores) MEMORY(bytes)\n"
	for args, want := range map[string]result{
		"pods":                      {stdout: podHead + "default db 1500m 2000Mi\ndefault web 21m 304Mi\nother new 0m 0Mi\nother web 3m 1Mi\n"},
		"pods --sort-by memory":     {stdout: podHead + "default db 1500m 2000Mi\ndefault web 21m 304Mi\nother web 3m 1Mi\nother new 0m 0Mi\n"},
		"po -n other --sort-by cpu": {stdout: podHead + "other web 3m 1Mi\nother new 0m 0Mi\n"},
		"pod web":                   {stdout: podHead + "default web 21m 304Mi\n"},
		"pod other/web":             {stdout: podHead + "other web 3m 1Mi\n"},
		"pod/db --containers":       {stdout: containerHead + "default db z 1500m 2000Mi\n"},
		"containers":                {stdout: containerHead + "default db z 1500m 2000Mi\ndefault web y 20m 4Mi\ndefault web z 1m 300Mi\nother web z 3m 1Mi\n"},
		"containers web":            {stdout: containerHead + "default web y 20m 4Mi\ndefault web z 1m 300Mi\n"},
		"pods -n none":              {stderr: "No pods found.\n"},
		"pod gone":                  {stderr: "monopod: nothing of pod default/gone runs\n", code: 1},
		"node":                      {stdout: "NAME CPU(cores) CPU(%) MEMORY(bytes) MEMORY(%)\nn1 N 25% 1000Mi 25%\n"},
		"node x":                    {stderr: "monopod: top node takes neither NAME nor --containers\nsee `monopod top --help`\n", code: 2},
		"deployments x":             {stderr: "monopod: monopod has no \"deployments\"\nsee `monopod top --help`\n", code: 2},
		"pods --sort-by age":        {stderr: "monopod: cannot sort by \"age\"; one of cpu, memory\nsee `monopod top --help`\n", code: 2},
	} {
		p := newProgram()
		var out, errs bytes.Buffer
		p.Stdout, p.Stderr = &out, &errs
		code := NewCommands(p).run(t.Context(), append([]string{"top", "--socket", dir + "/s"}, strings.Fields(args)...))
		got := result{regexp.MustCompile(` +`).ReplaceAllString(out.String(), " "), errs.String(), code}
		if args == "node" {
			got.stdout = regexp.MustCompile(`n1 \d+m`).ReplaceAllString(got.stdout, "n1 N")
		}
		if got != want {
			t.Errorf("%s:\n%+v, want\n%+v", args, got, want)
		}
	}
	// With --watch it runs until interrupted.
	ctx, stop := context.WithCancel(t.Context())
	p := newProgram()
	p.Stdout = writerFunc(func(b []byte) (int, error) { stop(); return len(b), nil })
	if code := NewCommands(p).run(ctx, []string{"top", "node", "-w", "--socket", dir + "/s"}); code != 0 {
		t.Error(code)
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }
