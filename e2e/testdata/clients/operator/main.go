// Operator is a small operator made with controller-runtime: for each ConfigMap with the label "sites" it keeps a Deployment of as many
// replicas as the ConfigMap says, and writes into the ConfigMap how many are ready. Of several operators the one with the Lease works.
//
//	operator KUBECONFIG IDENTITY IMAGE    an empty KUBECONFIG is that of the pod
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	clientset "k8s.io/client-go/kubernetes"
)

const (
	label     = "sites"
	finalizer = "monopod.test/site"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, identity, image string) error {
	ctrl.SetLogger(zap.New(zap.UseDevMode(true)))
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	locks, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "default", "operator", locks.CoreV1(), locks.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		LeaderElection: true, LeaderElectionID: "operator", LeaderElectionNamespace: "default", LeaderElectionResourceLockInterface: lock,
		LeaseDuration: ptr(3 * time.Second), RenewDeadline: ptr(2 * time.Second), RetryPeriod: ptr(500 * time.Millisecond),
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	labelled, err := predicate.LabelSelectorPredicate(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: label, Operator: metav1.LabelSelectorOpExists}}})
	if err != nil {
		return err
	}
	r := &reconciler{client: mgr.GetClient(), recorder: mgr.GetEventRecorder("sites"), identity: identity, image: image}
	err = ctrl.NewControllerManagedBy(mgr).Named("sites").For(&corev1.ConfigMap{}, builder.WithPredicates(labelled)).Owns(&appsv1.Deployment{}).Complete(r)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

func ptr[T any](v T) *T { return &v }

type reconciler struct {
	client          client.Client
	recorder        events.EventRecorder
	identity, image string
}

// Reconcile makes the Deployment of one ConfigMap what it is to be.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var site corev1.ConfigMap
	if err := r.client.Get(ctx, req.NamespacedName, &site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := site.DeepCopy()
	if !site.DeletionTimestamp.IsZero() {
		if !controllerutil.RemoveFinalizer(&site, finalizer) {
			return ctrl.Result{}, nil
		}
		note := corev1ac.ConfigMap(site.Name+"-was", site.Namespace).WithData(map[string]string{"site": site.Name})
		if err := r.client.Apply(ctx, note, client.FieldOwner("sites"), client.ForceOwnership); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, r.client.Patch(ctx, &site, client.MergeFrom(before))
	}
	if controllerutil.AddFinalizer(&site, finalizer) {
		if err := r.client.Patch(ctx, &site, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return ctrl.Result{}, err
		}
	}
	replicas, err := strconv.ParseInt(site.Data["replicas"], 10, 32)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("replicas: %w", err)
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: site.Name, Namespace: site.Namespace}}
	did, err := controllerutil.CreateOrUpdate(ctx, r.client, d, func() error {
		r.fill(d, int32(replicas))
		return controllerutil.SetControllerReference(&site, d, r.client.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if did != controllerutil.OperationResultNone {
		r.recorder.Eventf(&site, d, corev1.EventTypeNormal, "Deployed", "Deploy", "the Deployment is %s", did)
	}
	before = site.DeepCopy()
	site.Annotations = maps.Clone(site.Annotations)
	metav1.SetMetaDataAnnotation(&site.ObjectMeta, "ready", strconv.Itoa(int(d.Status.ReadyReplicas)))
	metav1.SetMetaDataAnnotation(&site.ObjectMeta, "operator", r.identity)
	if maps.Equal(site.Annotations, before.Annotations) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.client.Patch(ctx, &site, client.MergeFrom(before))
}

// fill sets what the operator decides, and leaves defaults alone.
func (r *reconciler) fill(d *appsv1.Deployment, replicas int32) {
	labels := map[string]string{"site": d.Name}
	d.Spec.Replicas, d.Spec.Selector = &replicas, &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	if len(d.Spec.Template.Spec.Containers) == 0 {
		d.Spec.Template.Spec.Containers = []corev1.Container{{}}
	}
	c := &d.Spec.Template.Spec.Containers[0]
	c.Name, c.Image, c.Command = "site", r.image, []string{"sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"}
	d.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr(int64(1))
}
