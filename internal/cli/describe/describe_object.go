package describe

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/internal/cli/lookup"
	"monopod/internal/model"
	"monopod/internal/objects"
	"monopod/internal/podtable"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/events"
	"monopod/node/localapi"
	"monopod/node/localclient"
)

// describeObject shows an object that is not a pod: the columns of `get -o wide` as lines, its pods, and its events.
func (p Commands) describeObject(ctx context.Context, c *localclient.Client, o program.Object) error {
	item, err := lookup.FindObject(ctx, c, o)
	if err != nil {
		return err
	}
	happened, err := c.Events(ctx, events.Filter{Kind: o.Kind, Namespace: o.Key.Namespace, Name: o.Key.Name})
	if err != nil {
		return err
	}
	table, err := lookup.TableOf(ctx, c, localapi.ObjectQuery{Kind: o.Kind, Namespace: o.Key.Namespace, Name: o.Key.Name}, true)
	if err != nil {
		return err
	}
	d := &description{w: p.Out(), now: time.Now()}
	notes := maps.Clone(item.Object.GetAnnotations())
	source, space := notes[node.AnnotationSource], notes[node.AnnotationSpace]
	for _, own := range []string{node.AnnotationSource, node.AnnotationSpace, node.AnnotationEndpoints} {
		delete(notes, own)
	}
	d.field("Name", item.Object.GetName())
	d.field("Namespace", item.Object.GetNamespace())
	d.field("Kind", item.Kind)
	d.field("Source", source)
	d.field("Space", strings.Trim(space, "()"))
	d.list("Labels", pairs(item.Object.GetLabels()))
	d.list("Annotations", pairs(notes))
	service, isService := item.Object.(*corev1.Service)
	for i, cell := range table.Rows[manifests.Key{Namespace: item.Object.GetNamespace(), Name: item.Object.GetName()}] {
		switch title := table.Titles[i]; {
		case title == "Name": // which is shown above
		case isService && (title == "Selector" || title == "External-IP" && service.Spec.Type != corev1.ServiceTypeExternalName): // which more shows
		default:
			d.field(title, cell)
		}
	}
	d.more(item)
	if objects.IsWorkload(item.Kind) || item.Kind == "Service" {
		if err := p.describePods(ctx, c, d, item); err != nil {
			return err
		}
	}
	d.events(happened.Items)
	return nil
}

// more prints details of certain kinds.
func (d *description) more(i objects.Item) {
	switch o := i.Object.(type) {
	case *corev1.Service:
		d.service(o)
	case *corev1.ConfigMap:
		var keys []string
		for _, k := range pairs(o.Data) {
			name, _, _ := strings.Cut(k, "=")
			keys = append(keys, fmt.Sprintf("%s (%d bytes)", name, len(o.Data[name])))
		}
		d.list("Keys", keys)
	case *batchv1.Job:
		d.field("Pods statuses", fmt.Sprintf("%d active, %d succeeded, %d failed", o.Status.Active, o.Status.Succeeded, o.Status.Failed))
	case *batchv1.CronJob:
		d.field("Next run", nextRun(o, d.now))
	case *corev1.Node:
		var all []corev1.PodCondition
		for _, c := range o.Status.Conditions {
			all = append(all, corev1.PodCondition{Type: corev1.PodConditionType(c.Type), Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime})
		}
		d.conditions(all)
	}
}

// nextRun returns when the next Job of a CronJob begins.
func nextRun(c *batchv1.CronJob, now time.Time) string {
	if c.Spec.Suspend != nil && *c.Spec.Suspend {
		return "never, it is suspended"
	}
	schedule, err := manifests.CronSchedule(&c.Spec)
	if err != nil {
		return "<invalid>"
	}
	next := schedule.Next(now)
	if next.IsZero() {
		return "never"
	}
	return fmt.Sprintf("%s (in %s)", next.Local().Format("2006-01-02 15:04"), duration.HumanDuration(next.Sub(now)))
}

// service prints the addresses of a Service besides its cluster IP, where its ports lead, and what it asks for and does not get.
func (d *description) service(s *corev1.Service) {
	d.list("Other cluster IPs", s.Spec.ClusterIPs[min(1, len(s.Spec.ClusterIPs)):])
	d.list("External IPs", s.Spec.ExternalIPs)
	var balanced []string
	for _, in := range s.Status.LoadBalancer.Ingress {
		balanced = append(balanced, in.IP)
	}
	d.list("Load balancer", balanced)
	var targets []string
	for _, p := range s.Spec.Ports {
		targets = append(targets, strings.TrimSpace(fmt.Sprintf("%d/%s -> %s %s", p.Port, cmp.Or(p.Protocol, corev1.ProtocolTCP), p.TargetPort.String(), p.Name)))
	}
	d.list("Target ports", targets)
	d.list("Selector", pairs(s.Spec.Selector))
	d.field("Endpoints", s.Annotations[node.AnnotationEndpoints])
	d.field("Not given", model.Refusal(s))
}

// describePods prints the pods of an object, one line each.
func (p Commands) describePods(ctx context.Context, c *localclient.Client, d *description, i objects.Item) error {
	pods, err := lookup.PodsOf(ctx, c, i)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		d.field("Pods", "<none>")
		return nil
	}
	d.w.Println("Pods:")
	rows := [][]string{{"  NAME", "READY", "STATUS", "RESTARTS", "IP"}}
	for n := range pods {
		r := podtable.RowOf(&pods[n], d.now)
		rows = append(rows, []string{"  " + r.Name, r.Ready, r.Status, r.Restarts, r.IP})
	}
	(&program.Table{W: d.w}).PrintAll(rows)
	return nil
}

// RawTree decodes an object to change it.
func RawTree(raw []byte) (map[string]any, error) {
	var tree map[string]any
	return tree, json.Unmarshal(raw, &tree)
}
