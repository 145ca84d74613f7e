package decode

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"monopod/manifests"
)

// eightfold is an environment of a kilobyte in which each variable is eight times the one before.
func eightfold() string {
	var b strings.Builder
	b.WriteString(`{"name":"A0","value":"0123456789abcdef"}`)
	for i := range 12 {
		fmt.Fprintf(&b, `,{"name":"A%d","value":"%s"}`, i+1, strings.Repeat(fmt.Sprintf("$(A%d)", i), 8))
	}
	return b.String()
}

func repeated(n int, format string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = strings.ReplaceAll(format, "#", fmt.Sprint(i))
	}
	return strings.Join(parts, ",")
}

// Small documents can expand to more than a machine has. Each is refused at the field that causes it, at a cost in proportion to its size.
func TestWhatStandsForTooMuchIsRefusedWithItsField(t *testing.T) {
	pod := func(container, spec string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"` + container + `}]` + spec + `}}`
	}
	workload := func(kind, spec, template string) string {
		group := "apps/v1"
		selector := `,"selector":{"matchLabels":{"a":"b"}}`
		if kind == "Job" {
			group, selector = "batch/v1", ""
		}
		return `{"apiVersion":"` + group + `","kind":"` + kind + `","metadata":{"name":"w"},"spec":{` + spec + selector +
			`,"template":{"metadata":{"labels":{"a":"b"}},"spec":{` + template + `"containers":[{"name":"c","image":"i"}]}}}}`
	}
	cron := func(spec, job string) string {
		return `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"w"},"spec":{"schedule":"* * * * *"` + spec +
			`,"jobTemplate":{"spec":{` + job + `"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`
	}
	const job = `"restartPolicy":"Never",`
	long := strings.Repeat("x", 70_000)
	for name, tt := range map[string]struct{ text, field, want string }{
		"variables made of variables":  {pod(`,"env":[`+eightfold()+`]`, ""), "spec.containers[0].env[5].value", "131071 bytes"},
		"a long variable":              {pod(`,"env":[{"name":"A","value":"`+long+long+`"}]`, ""), "spec.containers[0].env[0].value", "131071 bytes"},
		"many long variables":          {pod(`,"env":[`+repeated(40, `{"name":"A#","value":"`+long+`"}`)+`]`, ""), "spec.containers[0].env[29].value", "2097152 bytes"},
		"arguments made of a variable": {pod(`,"env":[{"name":"A","value":"`+long+`"}],"args":["$(A)","$(A)$(A)"]`, ""), "spec.containers[0].args[1]", "131071 bytes"},
		"a command made of it":         {pod(`,"env":[{"name":"A","value":"`+long+`"}],"command":["`+strings.Repeat("$(A)", 100_000)+`"]`, ""), "spec.containers[0].command[0]", "131071 bytes"},
		"a probe made of it": {
			pod(`,"env":[{"name":"A","value":"`+long+`"}],"livenessProbe":{"exec":{"command":["`+strings.Repeat("$(A)", 100_000)+`"]}}`, ""),
			"spec.containers[0].livenessProbe.exec.command[0]", "131071 bytes",
		},
		"a hook": {pod(`,"lifecycle":{"preStop":{"exec":{"command":["`+long+long+`"]}}}`, ""), "spec.containers[0].lifecycle.preStop.exec.command[0]", "131071 bytes"},
		"a path made of it": {
			pod(`,"env":[{"name":"A","value":"`+long+`"}],"volumeMounts":[{"name":"v","mountPath":"/a","subPathExpr":"$(A)"}]`, `,"volumes":[{"name":"v","emptyDir":{}}]`),
			"spec.containers[0].volumeMounts[0].subPathExpr", "4095 bytes",
		},
		"containers":              {pod("", `,"initContainers":[`+repeated(101, `{"name":"i#","image":"i"}`)+`]`), "spec.initContainers", "at most 100"},
		"volumes":                 {pod("", `,"volumes":[`+repeated(501, `{"name":"v#","persistentVolumeClaim":{"claimName":"c#"}}`)+`]`), "spec.volumes", "at most 500"},
		"mounts":                  {pod(`,"volumeMounts":[`+repeated(501, `{"name":"v","mountPath":"/m#"}`)+`]`, `,"volumes":[{"name":"v","emptyDir":{}}]`), "spec.containers[0].volumeMounts", "at most 500"},
		"ports":                   {pod(`,"ports":[`+repeated(2001, `{"containerPort":80}`)+`]`, ""), "spec.containers[0].ports", "at most 2000"},
		"sources":                 {pod("", `,"volumes":[{"name":"v","projected":{"sources":[`+repeated(501, `{"configMap":{"name":"m"}}`)+`]}}]`), "spec.volumes[0].projected.sources", "at most 500"},
		"options of the resolver": {pod("", `,"dnsConfig":{"options":[`+repeated(101, `{"name":"o#"}`)+`]}`), "spec.dnsConfig.options", "at most 100"},
		"lines of /etc/hosts":     {pod("", `,"hostAliases":[`+repeated(1_200, `{"ip":"10.0.0.1","hostnames":[`+strings.Repeat(`"`+strings.Repeat("abcdefghi.", 10)+`abc",`, 9)+`"a"]}`)+`]`), "spec.hostAliases", "1048576 bytes"},
		"replicas":                {workload("Deployment", `"replicas":1000000000`, ""), "spec.replicas", "1000"},
		"pods of a StatefulSet":   {workload("StatefulSet", `"serviceName":"s","replicas":1000000000`, ""), "spec.replicas", "1000"},
		"pods of a ReplicaSet":    {workload("ReplicaSet", `"replicas":1000000000`, ""), "spec.replicas", "1000"},
		"completions":             {workload("Job", `"completions":1000000000`, job), "spec.completions", "10000"},
		"parallel pods":           {workload("Job", `"parallelism":1000000000`, job), "spec.parallelism", "1000"},
		"runs of a CronJob":       {cron(`,"successfulJobsHistoryLimit":1000000000`, ""), "spec.successfulJobsHistoryLimit", "500"},
		"completions of a run":    {cron("", `"completions":1000000000,`), "spec.jobTemplate.spec.completions", "1000"},
		"a large template, many times": {
			workload("Deployment", `"replicas":1000`, `"hostAliases":[`+repeated(500, `{"ip":"10.0.0.1","hostnames":["`+strings.Repeat("abcdefghi.", 9)+`abc"]}`)+`],`),
			"spec.replicas", "32 MiB",
		},
		"many workloads": {repeatedDocs(3, workload("Deployment", `"replicas":900`, "")), "spec.replicas", "at most 2000 pods"},
		"many pods":      {repeatedDocs(2001, pod("", "")), "", "at most 2000 pods"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c, err := Parts("f.yaml", []byte(tt.text), Options{})
			runtime.ReadMemStats(&after)
			all := manifests.Errors(err)
			if len(all) != 1 || all[0].Field != tt.field || !strings.Contains(all[0].Msg, tt.want) || all[0].Line == 0 {
				t.Fatalf("%d problems: %.500v", len(all), err)
			}
			if n := len(c.Pods) + len(c.Workloads); n > maxMadePods {
				t.Errorf("%d pods and workloads were taken", n)
			}
			if cost := after.TotalAlloc - before.TotalAlloc; cost > maxCost {
				t.Errorf("%d MiB were allocated for %d KiB", cost>>20, len(tt.text)>>10)
			}
		})
	}
}

// repeatedDocs are documents that differ in their name.
func repeatedDocs(n int, doc string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("---\n" + strings.Replace(strings.Replace(doc, `{"name":"p"}`, fmt.Sprintf(`{"name":"p%d"}`, i), 1), `{"name":"w"}`, fmt.Sprintf(`{"name":"w%d"}`, i), 1) + "\n")
	}
	return b.String()
}

// The limits are beyond what manifests have: what is large, but can run, is accepted.
func TestWhatIsLargeButCanRunIsAccepted(t *testing.T) {
	text := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"initContainers":[` + repeated(50, `{"name":"i#","image":"i"}`) + `],"containers":[{"name":"c","image":"i",
"env":[{"name":"A","value":"` + strings.Repeat("x", 60_000) + `"},{"name":"B","value":"$(A)$(A)"}],"args":["$(A)","$(B)"],"ports":[` + repeated(1_000, `{"containerPort":80}`) + `]}]}}`
	if _, err := All("f.yaml", []byte(text), Options{}); err != nil {
		t.Errorf("%.500v", err)
	}
}
