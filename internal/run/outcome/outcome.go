// Package outcome completes the report of a run with what its agent knows, prints it, and writes it to files.
//
// It must not judge pods: package trial does. It starts no goroutines.
package outcome

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/podtable"
	"monopod/internal/printer"
	"monopod/internal/program"
	"monopod/internal/trial"
	"monopod/node/localclient"
	"monopod/node/why"
)

const (
	// logPatience bounds reading the log of one container.
	logPatience = 5 * time.Second
	// whyPatience bounds the answer about all pods.
	whyPatience = 10 * time.Second
)

// AddLogs adds the last log lines of pods that are not up to the report.
func AddLogs(ctx context.Context, socket string, r *trial.Report, lines int) {
	client := localclient.New(socket)
	for i := range r.Pods {
		pod := &r.Pods[i]
		if pod.Result == trial.OK || lines == 0 {
			continue
		}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			// A container that has not run has no log.
			if text, err := readLog(ctx, client, *pod, url.Values{"container": {c}, "tailLines": {strconv.Itoa(lines)}}); err == nil && text != "" {
				pod.Logs = append(pod.Logs, trial.Log{Container: c, Text: text})
			}
		}
	}
}

// AddCauses adds to pods that are not up what `monopod why` prints. Of pods that have ended, the reason and the logs are all that is known.
func AddCauses(ctx context.Context, socket string, r *trial.Report) error {
	unclear := func(p trial.Pod) bool { return p.Result != trial.OK && p.Phase != string(corev1.PodFailed) }
	if !slices.ContainsFunc(r.Pods, unclear) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, whyPatience)
	defer cancel()
	answer, err := localclient.New(socket).Why(ctx, "", "")
	if err != nil {
		return err
	}
	for i := range r.Pods {
		pod := &r.Pods[i]
		at := slices.IndexFunc(answer.Chains, func(c why.Chain) bool { return c.Pod == pod.Key().String() })
		if at < 0 || !unclear(*pod) {
			continue
		}
		chain := answer.Chains[at]
		chain.Steps = slices.DeleteFunc(chain.Steps, func(s why.Step) bool { return s.Kind == why.Output }) // --log-lines has it
		alone := why.Answer{Chains: []why.Chain{chain}}
		pod.Why = printer.TextLines(alone.Print(func(t time.Time) string { return t.Local().Format(time.TimeOnly) }))
	}
	return nil
}

func readLog(ctx context.Context, client *localclient.Client, pod trial.Pod, q url.Values) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	body, err := client.Log(ctx, pod.Namespace, pod.Name, q)
	if err != nil {
		return "", err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, 1<<20))
	return string(b), err
}

// Print prints the report of a run on w, and on errs the last log lines and the causes of pods that are not up.
func Print(w, errs printer.Printer, r trial.Report, views []trial.View) {
	t := &program.Table{W: w}
	now := time.Now()
	rows := [][]string{{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "IP", "RESULT", "AFTER", "REASON"}}
	for _, pod := range r.Pods {
		row := podtable.PodRow{Namespace: pod.Namespace, Name: pod.Name, Ready: "-", Status: "-", Restarts: "-", IP: "<none>"}
		if i := slices.IndexFunc(views, func(v trial.View) bool { return v.Pod.Namespace == pod.Namespace && v.Pod.Name == pod.Name }); i >= 0 {
			row = podtable.RowOf(views[i].Pod, now)
		}
		rows = append(rows, []string{row.Namespace, row.Name, row.Ready, row.Status, row.Restarts, row.IP, string(pod.Result), after(pod.Seconds), printer.OneLine(pod.Reason)})
	}
	for _, o := range r.Workloads {
		rows = append(rows, []string{o.Namespace, strings.ToLower(o.Kind) + "/" + o.Name, "", "", "", "", string(o.Result), after(o.Seconds), printer.OneLine(o.Reason)})
	}
	if len(rows) > 1 {
		t.PrintAll(rows)
	}
	for _, pod := range r.Pods {
		for _, l := range pod.Logs {
			errs.Printf("--- last lines of pod %s, container %s:\n", pod.Key(), l.Container)
			errs.Block("    ", l.Text)
		}
		if len(pod.Why) > 0 {
			errs.Lines(strings.Join(pod.Why, "\n"))
		}
	}
	for _, m := range r.Refused {
		errs.Println(m.Text)
	}
}

func after(s float64) string { return strconv.FormatFloat(s, 'f', 1, 64) + "s" }

// Write writes a report to a file; an empty path is none.
func Write(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("report %s: %w", path, err)
	}
	return nil
}
