package charttest

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite kubernetes.yaml and the golden files")

const folder = "../chart"

// sets are the values of each golden file, beside image.repository.
var sets = []struct{ name, values string }{
	{"default", ``},
	{"one", `{replicas: 1, replicationFactor: 1, settings: {shards: 2}, stopWait: 0s}`},
	{"six", `{replicas: 6, settings: {shutdown-timeout: 1500ms, max-connections: 5000, audit: stderr},
		storage: {size: 100Gi, class: fast}, resources: {requests: {cpu: 2}, limits: {memory: 4Gi}},
		priorityClassName: high, podLabels: {team: a}, podAnnotations: {note: b}, nodeSelector: {disk: fast},
		tolerations: [{key: dedicated, operator: Exists}], topologySpreadConstraints: [{maxSkew: 1,
		topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {team: a}}}],
		affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms:
		[{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}}}`},
	{"digest", `{image: {tag: other, digest: "sha256:` + strings.Repeat("0f", 32) + `", pullSecrets: [registry]}}`},
	{"tls", `{tls: {cluster: {secret: instances}, clients: {secret: servers}}}`},
	{"plain-closed", `{tls: {clients: {secret: servers, plain: false}}, console: {enabled: true, hosts: [locks.example]}, http: {enabled: true},
		backup: {schedule: "17 3 * * *"}}`},
	{"auth", `{auth: {enabled: true, adminTokenSecret: administrator}, backup: {schedule: "@daily", tokenSecret: backups}}`},
	{"zones", `{failureDomain: {ZONE: {label: topology.kubernetes.io/zone}, SITE: {value: east}}, clusterDomain: corp.example}`},
	{"monitoring", `{monitoring: {podMonitor: true, rules: true, dashboards: true}}`},
	{"backup", `{backup: {schedule: "17 3 * * *", keep: 30, size: 50Gi}, storage: {class: slow}}`},
	{"console", `{console: {enabled: true, hosts: [locks.example, 10.0.0.1]}, tls: {console: {secret: pages}}}`},
	{"http", `{http: {enabled: true, hosts: [locks.example]}, tls: {http: {secret: web}}}`},
	{"network", `{service: {type: LoadBalancer, annotations: {team: a}}, networkPolicy: {enabled: true,
		clients: [{namespaceSelector: {}}], metrics: [{namespaceSelector: {matchLabels: {team: metrics}}}]},
		ingress: {console: true, http: true, className: public, tlsSecret: pages, annotations: {proxy: b}},
		console: {enabled: true, hosts: [pages.example, 10.0.0.1]}, http: {enabled: true, hosts: [locks.example]}}`},
	{"openshift", `{runAsUser: null, serviceAccountName: locks, image: {pullPolicy: Always}, backup: {schedule: "@daily"},
		env: [{name: TZ, value: UTC}], volumes: [{name: cas, secret: {secretName: cas, defaultMode: 0440}}],
		volumeMounts: [{name: cas, mountPath: /etc/cas, readOnly: true}]}`},
	{"restore", `{restore: {file: a.backup, keepClients: true}, podLabels: {team: a}}`},
	{"restore-one", `{replicas: 1, replicationFactor: 1, restore: {file: a.backup, claim: other}}`},
	{"subchart", `{enabled: true, global: {team: a}}`},
}

func TestMain(m *testing.M) {
	flag.Parse()
	log.SetOutput(io.Discard) // Helm notes each link of the chart
	os.Exit(m.Run())
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func parse(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// render returns the objects as YAML, in the order of their files, and the notes.
func render(c *chart.Chart, release string, values map[string]any) (objects []string, notes string, err error) {
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return nil, "", err
	}
	all, err := chartutil.ToRenderValues(c, values,
		chartutil.ReleaseOptions{Name: release, Namespace: "locks", Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, "", err
	}
	// The set comes after what it needs.
	order := []string{"services.yaml", "statefulset.yaml", "backup.yaml", "restore.yaml", "network.yaml", "monitoring.yaml"}
	for _, path := range slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		return slices.Index(order, filepath.Base(a)) - slices.Index(order, filepath.Base(b))
	}) {
		switch {
		case strings.HasSuffix(path, "NOTES.txt"):
			notes = files[path]
		case strings.HasSuffix(path, ".yaml"):
			for _, o := range strings.Split("\n"+files[path], "\n---\n") {
				if o = strings.Trim(o, "\n"); o != "" {
					objects = append(objects, o+"\n")
				}
			}
		}
	}
	return objects, notes, nil
}

// rendered renders a value set under the release's name "signalbox", or as a part of another chart.
func rendered(t *testing.T, name, values string) ([]string, string) {
	t.Helper()
	c, v, release := load(t), parse(t, values), "signalbox"
	if v == nil {
		v = map[string]any{}
	}
	v["image"] = merge(v["image"], "repository", "signalbox")
	if name == "subchart" {
		shop := &chart.Chart{Metadata: &chart.Metadata{APIVersion: "v2", Name: "shop", Version: "1.0.0",
			Dependencies: []*chart.Dependency{{Name: "signalbox", Version: c.Metadata.Version, Condition: "signalbox.enabled"}}}}
		shop.AddDependency(c)
		c, v, release = shop, map[string]any{"signalbox": v}, "shop"
	}
	objects, notes, err := render(c, release, v)
	if err != nil {
		t.Fatal(err)
	}
	return objects, notes
}

func merge(v any, key string, value any) map[string]any {
	m, _ := v.(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	m[key] = value
	return m
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	before, err := os.ReadFile(path)
	switch {
	case *update && got != string(before):
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	case *update:
	case err != nil:
		t.Fatal(err)
	case got != string(before):
		t.Errorf("%s differs from what the chart renders; `make golden` rewrites it:\n%s", path, got)
	}
}

const header = `# Three instances: what the chart in this folder renders by default, rewritten by ` + "`make golden`" + `.
# Before the first apply, make the secret:
#   kubectl create secret generic signalbox --from-literal=join-token=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
# Set the image to yours. Clients connect to signalbox:7070, and from there on to the pods' own names.
`

// TestGolden: each value set renders as before. kubernetes.yaml is the default one.
func TestGolden(t *testing.T) {
	for _, s := range sets {
		objects, notes := rendered(t, s.name, s.values)
		text := strings.Join(objects, "---\n")
		if s.name == "default" {
			golden(t, "../kubernetes.yaml", header+text)
			golden(t, "testdata/notes.txt", notes)
			continue
		}
		if s.name == "monitoring" { // the files are compared by themselves
			text = regexp.MustCompile(`(?ms)^(  groups:|data:)\n.*?(^---\n|\z)`).ReplaceAllString(text, "$1 (omitted)\n$2")
			text = regexp.MustCompile(`(?m)^  # .*\n`).ReplaceAllString(text, "")
		}
		golden(t, "testdata/"+s.name+".yaml", text)
	}
}

// objects are the objects of a value set, in their types.
type objects struct {
	t        *testing.T
	services map[string]*corev1.Service
	claims   map[string]*corev1.PersistentVolumeClaim
	configs  map[string]*corev1.ConfigMap
	budgets  []*policyv1.PodDisruptionBudget
	ingress  []*networkingv1.Ingress
	network  *networkingv1.NetworkPolicy
	set      *appsv1.StatefulSet
	job      *batchv1.CronJob
	restore  *batchv1.Job
	monitor  *monitoringv1.PodMonitor
	rules    *monitoringv1.PrometheusRule
}

// decode decodes objects strictly: an unknown or a repeated key is an error.
func decode(t *testing.T, list []string) *objects {
	t.Helper()
	o := &objects{t: t, services: map[string]*corev1.Service{}, claims: map[string]*corev1.PersistentVolumeClaim{},
		configs: map[string]*corev1.ConfigMap{}}
	for _, text := range list {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		strictly := func(to any) {
			t.Helper()
			if err := yaml.UnmarshalStrict([]byte(text), to); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
		switch kind {
		case metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}:
			x := new(corev1.Service)
			strictly(x)
			o.services[x.Name] = x
		case metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}:
			x := new(corev1.PersistentVolumeClaim)
			strictly(x)
			o.claims[x.Name] = x
		case metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}:
			x := new(corev1.ConfigMap)
			strictly(x)
			o.configs[x.Name] = x
		case metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}:
			x := new(policyv1.PodDisruptionBudget)
			strictly(x)
			o.budgets = append(o.budgets, x)
		case metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}:
			o.set = new(appsv1.StatefulSet)
			strictly(o.set)
		case metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"}:
			o.job = new(batchv1.CronJob)
			strictly(o.job)
		case metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}:
			o.restore = new(batchv1.Job)
			strictly(o.restore)
		case metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}:
			o.network = new(networkingv1.NetworkPolicy)
			strictly(o.network)
		case metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}:
			x := new(networkingv1.Ingress)
			strictly(x)
			o.ingress = append(o.ingress, x)
		case metav1.TypeMeta{APIVersion: "monitoring.coreos.com/v1", Kind: "PodMonitor"}:
			o.monitor = new(monitoringv1.PodMonitor)
			strictly(o.monitor)
		case metav1.TypeMeta{APIVersion: "monitoring.coreos.com/v1", Kind: "PrometheusRule"}:
			o.rules = new(monitoringv1.PrometheusRule)
			strictly(o.rules)
		default:
			t.Errorf("%s is not expected", kind)
		}
	}
	if o.set == nil {
		t.Fatal("there is no StatefulSet")
	}
	return o
}

// TestNotes: what is advised fits the values: the steps of a restore, whether instances may be expelled,
// and where the administrator's token is.
func TestNotes(t *testing.T) {
	const copies, expel, first = "cluster replication-factor default 3", "cluster expel", "pod/signalbox-0"
	for _, c := range []struct {
		values     string
		has, lacks []string
	}{
		{`{}`, nil, []string{copies, expel}},
		{`{replicas: 6}`, []string{"cluster expel signalbox-5 "}, []string{copies}},
		{`{restore: {file: a.backup}}`, []string{"--replicas 1", first, copies}, []string{expel}},
		{`{replicas: 1, replicationFactor: 1, restore: {file: a.backup}}`, nil, []string{"--replicas", first, copies, expel}},
		{`{auth: {enabled: true}}`, []string{"--token-file /data/signalbox/admin-token"}, nil},
		{`{auth: {enabled: true, adminTokenSecret: s}, restore: {file: a.backup}}`,
			[]string{"--token-file /etc/signalbox/admin/admin-token"}, nil},
		{`{auth: {enabled: true}, restore: {file: a.backup}}`, []string{"auth.adminTokenSecret"}, []string{"/data/"}},
	} {
		_, notes := rendered(t, "notes", c.values)
		for _, text := range c.has {
			if !strings.Contains(notes, text) {
				t.Errorf("with %s the notes lack %q:\n%s", c.values, text, notes)
			}
		}
		for _, text := range c.lacks {
			if strings.Contains(notes, text) {
				t.Errorf("with %s the notes have %q:\n%s", c.values, text, notes)
			}
		}
	}
}

// TestObjects: all objects decode, name each other rightly and pass pod security's restricted.
func TestObjects(t *testing.T) {
	security, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sets {
		t.Run(s.name, func(t *testing.T) {
			list, notes := rendered(t, s.name, s.values)
			o := decode(t, list)
			pods := []*corev1.PodTemplateSpec{&o.set.Spec.Template}
			if o.job != nil {
				pods = append(pods, &o.job.Spec.JobTemplate.Spec.Template)
			}
			if o.restore != nil {
				pods = append(pods, &o.restore.Spec.Template)
			}
			for _, p := range pods {
				results := security.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()},
					&p.ObjectMeta, &p.Spec)
				if sum := policy.AggregateCheckResults(results); !sum.Allowed {
					t.Errorf("pod security: %s: %s", sum.ForbiddenReason(), sum.ForbiddenDetail())
				}
				if p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken {
					t.Error("a pod has a service account's token")
				}
			}
			o.checkSet()
			o.checkJob()
			o.checkRestore()
			o.checkNetwork()
			if !strings.Contains(notes, o.set.Name+"-0 --") {
				t.Errorf("the notes do not name the pods:\n%s", notes)
			}
			for _, b := range o.budgets {
				if b.Spec.MaxUnavailable.IntValue() != 1 || !selects(b.Spec.Selector.MatchLabels, &o.set.Spec.Template) {
					t.Errorf("the budget is %+v", b.Spec)
				}
			}
			if len(o.budgets) != 1 {
				t.Errorf("there are %d budgets", len(o.budgets))
			}
		})
	}
}

func selects(labels map[string]string, pod *corev1.PodTemplateSpec) bool {
	for k, v := range labels {
		if pod.Labels[k] != v {
			return false
		}
	}
	return len(labels) > 0
}

// checkPod checks what a pod names: variables, the files in their values, mounts and secrets'
// modes.
func (o *objects) checkPod(p *corev1.PodTemplateSpec, claims ...string) {
	o.t.Helper()
	reference := read(o.t, "../../../cmd/signalbox/REFERENCE.md")
	c := &p.Spec.Containers[0]
	defined := map[string]bool{}
	for _, e := range c.Env {
		if strings.HasPrefix(e.Name, "SIGNALBOX_") && !strings.Contains(reference, "`"+e.Name+"`") {
			o.t.Errorf("%s is unknown to the program", e.Name)
		}
		if defined[e.Name] {
			o.t.Errorf("%s is set twice", e.Name)
		}
		for _, m := range regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(e.Value, -1) {
			if !defined[m[1]] {
				o.t.Errorf("%s needs %s, which is not defined before it", e.Name, m[1])
			}
		}
		defined[e.Name] = true
		if strings.HasPrefix(e.Value, "/") && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return strings.HasPrefix(e.Value, m.MountPath+"/")
		}) {
			o.t.Errorf("%s is %s, which nothing mounts", e.Name, e.Value)
		}
	}
	names := slices.Clone(claims)
	for _, v := range p.Spec.Volumes {
		names = append(names, v.Name)
		if v.Secret != nil && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440) {
			o.t.Errorf("the files of the secret %s have mode %v", v.Secret.SecretName, v.Secret.DefaultMode)
		}
	}
	for _, m := range c.VolumeMounts {
		n := slices.Index(names, m.Name)
		if n < 0 {
			o.t.Fatalf("%s is mounted, and is no volume", m.Name)
		}
		names = slices.Delete(names, n, n+1)
	}
	if len(names) > 0 {
		o.t.Errorf("volumes %v are not mounted", names)
	}
}

func env(c *corev1.Container, name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

func (o *objects) checkSet() {
	o.t.Helper()
	s, c := o.set, &o.set.Spec.Template.Spec.Containers[0]
	var claims []string
	for _, x := range s.Spec.VolumeClaimTemplates {
		claims = append(claims, x.Name)
	}
	o.checkPod(&s.Spec.Template, claims...)
	if s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement || !selects(s.Spec.Selector.MatchLabels, &s.Spec.Template) {
		o.t.Errorf("the set starts pods %s, and selects %v", s.Spec.PodManagementPolicy, s.Spec.Selector.MatchLabels)
	}
	peers := o.services[s.Spec.ServiceName]
	if peers == nil || peers.Spec.ClusterIP != corev1.ClusterIPNone || !peers.Spec.PublishNotReadyAddresses {
		o.t.Fatalf("the set's service is %+v", peers)
	}
	if o.services[s.Name] == nil || len(o.services) != 2 {
		o.t.Errorf("the services are %v", slices.Collect(maps.Keys(o.services)))
	}
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, x := range o.services {
		if !selects(x.Spec.Selector, &s.Spec.Template) {
			o.t.Errorf("service %s selects no pod", x.Name)
		}
		for _, p := range x.Spec.Ports {
			if ports[p.Name] != p.Port {
				o.t.Errorf("service %s has port %s %d, and the pods %d", x.Name, p.Name, p.Port, ports[p.Name])
			}
		}
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if ports[p.HTTPGet.Port.StrVal] != 7072 {
			o.t.Errorf("a probe asks port %s", &p.HTTPGet.Port)
		}
	}
	host := func(pod string) string { return pod + "." + peers.Name + ".$(NAMESPACE).svc." }
	for _, name := range []string{"SIGNALBOX_ADVERTISE", "SIGNALBOX_ADVERTISE_TLS", "SIGNALBOX_RAFT_ADVERTISE"} {
		if at := env(c, name); at != "" && !strings.HasPrefix(at, host("$(POD)")) {
			o.t.Errorf("%s is %s", name, at)
		}
	}
	if list := env(c, "SIGNALBOX_PEER"); (list != "") != (*s.Spec.Replicas > 1) && o.restore == nil {
		o.t.Errorf("with %d replicas the peers are %q", *s.Spec.Replicas, list)
	} else if list != "" {
		for n, at := range strings.Split(list, ",") {
			if !strings.HasPrefix(at, host(fmt.Sprintf("%s-%d", s.Name, n))) || !strings.HasSuffix(at, ":7071") {
				o.t.Errorf("peer %d is %s", n, at)
			}
		}
	}
	if o.monitor != nil {
		if !selects(o.monitor.Spec.Selector.MatchLabels, &s.Spec.Template) || ports[*o.monitor.Spec.PodMetricsEndpoints[0].Port] == 0 {
			o.t.Errorf("the monitor is %+v", o.monitor.Spec)
		}
	}
}

func (o *objects) checkJob() {
	o.t.Helper()
	if o.job == nil {
		return
	}
	p := &o.job.Spec.JobTemplate.Spec.Template
	o.checkPod(p)
	for _, x := range o.services {
		if selects(x.Spec.Selector, p) {
			o.t.Errorf("service %s sends clients to the backup's pod", x.Name)
		}
	}
	claim := p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName
	if o.claims[claim] == nil {
		o.t.Errorf("claim %s is not there", claim)
	}
	host, port, _ := strings.Cut(env(&p.Spec.Containers[0], "SIGNALBOX_ENDPOINTS"), ":")
	service := o.services[o.set.Name]
	if !strings.HasPrefix(host, service.Name+".locks.svc.") || fmt.Sprint(service.Spec.Ports[0].Port) != port {
		o.t.Errorf("the backup asks %s:%s, and the service is %s %d", host, port, service.Name, service.Spec.Ports[0].Port)
	}
	if o.job.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent || *o.job.Spec.JobTemplate.Spec.ActiveDeadlineSeconds != 3600 {
		o.t.Errorf("the job is %+v", o.job.Spec)
	}
}

// checkRestore checks that no instance runs beside a restore, and that its pod is the first one of
// the set but for what it does.
func (o *objects) checkRestore() {
	o.t.Helper()
	if o.restore == nil {
		return
	}
	p, first := &o.restore.Spec.Template, o.set.Spec.Template.Spec.Containers[0]
	o.checkPod(p)
	c := p.Spec.Containers[0]
	claim := "data-" + o.set.Name + "-0"
	if *o.set.Spec.Replicas != 0 || *o.restore.Spec.BackoffLimit != 0 || p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != claim {
		o.t.Errorf("%d instances run beside the restore to %+v", *o.set.Spec.Replicas, p.Spec.Volumes[0])
	}
	if x := o.claims[claim]; x == nil || x.Annotations["helm.sh/resource-policy"] != "keep" ||
		!reflect.DeepEqual(x.Spec, o.set.Spec.VolumeClaimTemplates[0].Spec) {
		o.t.Errorf("the claim of the first pod is %+v", x)
	}
	for _, x := range o.services {
		if selects(x.Spec.Selector, p) {
			o.t.Errorf("service %s sends clients to the restore's pod", x.Name)
		}
	}
	c.Env = slices.Clone(c.Env)
	c.Env[0] = first.Env[0] // the pod's name
	c.VolumeMounts = slices.DeleteFunc(slices.Clone(c.VolumeMounts), func(m corev1.VolumeMount) bool { return m.Name == "backup" })
	c.Name, c.Args = first.Name, first.Args
	first.Ports, first.Resources, first.StartupProbe, first.LivenessProbe, first.ReadinessProbe = nil, c.Resources, nil, nil, nil
	if !reflect.DeepEqual(c, first) {
		o.t.Errorf("the restore's container differs from an instance's:\n%+v\n%+v", c, first)
	}
}

// checkNetwork checks that what lets callers in names ports and names that there are.
func (o *objects) checkNetwork() {
	o.t.Helper()
	ports := map[string]bool{}
	for _, p := range o.set.Spec.Template.Spec.Containers[0].Ports {
		ports[p.Name] = true
	}
	if o.network != nil {
		if !selects(o.network.Spec.PodSelector.MatchLabels, &o.set.Spec.Template) || !selects(o.network.Spec.Ingress[0].From[0].PodSelector.MatchLabels, &o.set.Spec.Template) {
			o.t.Errorf("the policy is %+v", o.network.Spec)
		}
		for _, r := range o.network.Spec.Ingress[1:] {
			for _, p := range r.Ports {
				if !ports[p.Port.StrVal] || p.Port.StrVal == "raft" || p.Port.StrVal == "admin" && len(r.From) == 0 {
					o.t.Errorf("the policy lets %+v to %s", r.From, p.Port.StrVal)
				}
			}
		}
	}
	for _, x := range o.ingress {
		for _, r := range x.Spec.Rules {
			b := r.HTTP.Paths[0].Backend.Service
			if !ports[b.Port.Name] || o.services[b.Name] == nil || net.ParseIP(r.Host) != nil {
				o.t.Errorf("%s leads to %+v", r.Host, b)
			}
		}
	}
}

// TestNames: with a release's longest name, no name is longer than its object may have.
func TestNames(t *testing.T) {
	for _, release := range []string{strings.Repeat("a", 53), "signalbox-" + strings.Repeat("a", 43)} {
		objects, _, err := render(load(t), release, parse(t, `{image: {repository: signalbox}, replicas: 64, backup: {schedule: "@daily"}, restore: {file: a}}`))
		if err != nil {
			t.Fatal(err)
		}
		o := decode(t, objects)
		if len(o.job.Name) > 52 || len(o.restore.Name) > 63 || len(o.set.Name+"-63") > 63 || len(o.set.Spec.ServiceName) > 63 || len(o.set.Name) > 52 {
			t.Error(o.job.Name, o.restore.Name, o.set.Name, o.set.Spec.ServiceName)
		}
	}
}

// TestOlderValues: values of a chart that lacked one, as --reuse-values keeps them, render or are
// refused by its name. No template fails on them.
func TestOlderValues(t *testing.T) {
	all := load(t).Values
	lacks := func(path string, without func(v map[string]any)) {
		c := load(t)
		c.Values["image"].(map[string]any)["repository"] = "signalbox"
		without(c.Values)
		_, _, err := render(c, "signalbox", map[string]any{})
		if name := path[strings.LastIndex(path, ".")+1:]; err != nil && !strings.Contains(err.Error(), "missing property '"+name+"'") &&
			!strings.Contains(err.Error(), "missing properties ") && !strings.Contains(err.Error(), "max-memory is not") {
			t.Errorf("without %s: %v", path, err)
		}
	}
	for key, value := range all {
		lacks(key, func(v map[string]any) { delete(v, key) })
		inner, _ := value.(map[string]any)
		for k, x := range inner {
			lacks(key+"."+k, func(v map[string]any) { delete(v[key].(map[string]any), k) })
			innermost, _ := x.(map[string]any)
			for n := range innermost {
				lacks(key+"."+k+"."+n, func(v map[string]any) { delete(v[key].(map[string]any)[k].(map[string]any), n) })
			}
		}
	}
}

// TestMonitoring: rules and dashboards are the files of the folder monitoring, byte for byte.
func TestMonitoring(t *testing.T) {
	list, _ := rendered(t, "monitoring", `{monitoring: {rules: true, dashboards: true}}`)
	o := decode(t, list)
	boards, _ := filepath.Glob("../monitoring/*.json")
	data := o.configs["signalbox-dashboards"].Data
	for _, path := range boards {
		if data[filepath.Base(path)] != read(t, path) {
			t.Errorf("%s differs in the config map", path)
		}
	}
	if len(boards) < 3 || len(data) != len(boards) {
		t.Errorf("there are %d dashboards, and the config map has %d", len(boards), len(data))
	}
	var alerts map[string]any
	if err := yaml.Unmarshal([]byte(read(t, "../monitoring/alerts.yml")), &alerts); err != nil {
		t.Fatal(err)
	}
	for _, text := range list {
		if !strings.Contains(text, "kind: PrometheusRule") {
			continue
		}
		got, want := parse(t, text)["spec"], any(alerts)
		a, _ := yaml.Marshal(got)
		b, _ := yaml.Marshal(want)
		if !bytes.Equal(a, b) {
			t.Errorf("the rules differ:\n%s", a)
		}
	}
	if len(o.rules.Spec.Groups) == 0 {
		t.Error("there are no rules")
	}
}

// TestGrace: pods get the wait, the stop, and 20 seconds.
func TestGrace(t *testing.T) {
	for values, want := range map[string]int64{
		`{}`: 83, `{stopWait: 0s}`: 23, `{stopWait: 2m}`: 143, `{stopWait: 30m}`: 1823,
		`{settings: {shutdown-timeout: 1500ms}}`: 82, `{settings: {shutdown-timeout: 10m}, stopWait: 5s}`: 625,
	} {
		list, _ := rendered(t, "", values)
		if got := *decode(t, list).set.Spec.Template.Spec.TerminationGracePeriodSeconds; got != want {
			t.Errorf("%s: %d seconds, want %d", values, got, want)
		}
	}
}

// TestScalingRestartsNothing: the pods of three and of six replicas are the same.
func TestScalingRestartsNothing(t *testing.T) {
	three, _ := rendered(t, "", `{replicas: 3}`)
	six, _ := rendered(t, "", `{replicas: 6}`)
	a, _ := yaml.Marshal(decode(t, three).set.Spec.Template)
	b, _ := yaml.Marshal(decode(t, six).set.Spec.Template)
	if !bytes.Equal(a, b) {
		t.Errorf("the template differs:\n%s\n%s", a, b)
	}
}

// TestRefused: bad values are refused, with a sentence that says so.
func TestRefused(t *testing.T) {
	for values, want := range map[string]string{
		`{image: {repository: ""}}`:                             "image.repository is empty; name the image",
		`{image: {digest: sha256:0}}`:                           "/image/digest': 'sha256:0' does not match pattern",
		`{image: {name: x}}`:                                    "additional properties 'name' not allowed",
		`{replica: 3}`:                                          "additional properties 'replica' not allowed",
		`{replicas: 2}`:                                         "replicas is 2; choose 1, or 3 to 64",
		`{replicas: 65}`:                                        "maximum: got 65, want 64",
		`{replicas: 0}`:                                         "minimum: got 0, want 1",
		`{replicationFactor: 2}`:                                "/replicationFactor': value must be one of 1, 3, 5",
		`{replicationFactor: 5}`:                                "replicationFactor is 5 and replicas is 3",
		`{settings: {max-memroy: 1GiB}}`:                        "additional properties 'max-memroy' not allowed",
		`{settings: {raft: "0.0.0.0:1"}}`:                       "additional properties 'raft' not allowed",
		`{settings: {shutdown-timeout: 1m30s}}`:                 "/settings/shutdown-timeout': '1m30s' does not match pattern",
		`{settings: {max-memory: 1Gi}}`:                         "settings.max-memory is 1Gi; write a number of bytes, or",
		`{settings: {max-memory: 1GB}}`:                         "settings.max-memory is 1GB; write a number of bytes, or",
		`{settings: {max-memory: 2GiB}}`:                        "settings.max-memory is 2GiB and resources.limits.memory is 1Gi",
		`{settings: {max-memory: 1073741825}}`:                  "settings.max-memory is 1073741825 and resources.limits.memory is 1Gi",
		`{resources: {limits: {memory: 800M}}}`:                 "settings.max-memory is 768MiB and resources.limits.memory is 800M",
		`{resources: {limits: {memory: 805306367}}}`:            "settings.max-memory is 768MiB and resources.limits.memory is 805306367",
		`{image: {pullPolicy: Sometimes}}`:                      "/image/pullPolicy': value must be one of",
		`{service: {type: ExternalName}}`:                       "/service/type': value must be one of",
		`{ingress: {console: true}}`:                            "ingress.console is true and console.enabled is false",
		`{ingress: {http: true}, http: {enabled: true}}`:        "ingress.http is true and http.enabled is false or http.hosts is empty",
		`{runAsUser: 0}`:                                        "/runAsUser': minimum: got 0, want 1",
		`{restore: {file: ../a}}`:                               "/restore/file': '../a' does not match pattern",
		`{settings: {max-memory: null}}`:                        "resources.limits.memory is set and settings.max-memory is not",
		`{storage: {size: ten}}`:                                "/storage/size': 'ten' does not match pattern",
		`{storage: {emptyDir: true}}`:                           "additional properties 'emptyDir' not allowed",
		`{joinTokenSecret: ""}`:                                 "/joinTokenSecret': minLength: got 0, want 1",
		`{tls: {clients: {plain: false}}}`:                      "tls.clients.plain is false and tls.clients.secret is empty",
		`{tls: {instances: {secret: a}}}`:                       "additional properties 'instances' not allowed",
		`{tls: {console: {secret: a}}}`:                         "tls.console.secret is set and console.enabled is false",
		`{tls: {http: {secret: a}}}`:                            "tls.http.secret is set and http.enabled is false",
		`{auth: {adminTokenSecret: a}}`:                         "auth.adminTokenSecret is set and auth.enabled is false",
		`{auth: {enabled: true}, backup: {schedule: "@daily"}}`: "auth.enabled is true and backup.tokenSecret is empty",
		`{failureDomain: {zone: {value: a}}}`:                   "invalid propertyName 'zone'",
		`{failureDomain: {ZONE: {}}}`:                           "failureDomain.ZONE needs either a label or a value",
		`{failureDomain: {ZONE: {label: a, value: b}}}`:         "failureDomain.ZONE needs either a label or a value",
		`{failureDomain: {ZONE: {value: "a,b"}}}`:               "/failureDomain/ZONE/value': 'a,b' does not match pattern",
		`{stopWait: 31m}`:                                       "stopWait is 31m; choose 0s to 30m",
		`{stopWait: 60}`:                                        "/stopWait': got number, want string",
		`{monitoring: {alerts: true}}`:                          "additional properties 'alerts' not allowed",
		`{console: {enabled: true}}`:                            "console.enabled is true and console.hosts is empty",
		`{backup: {schedule: "@daily", keep: 0}}`:               "/backup/keep': minimum: got 0, want 1",
	} {
		v := parse(t, values)
		if image, _ := v["image"].(map[string]any); image == nil || image["repository"] == nil {
			v["image"] = merge(v["image"], "repository", "signalbox")
		}
		if _, _, err := render(load(t), "signalbox", v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", values, err, want)
		}
	}
}

// TestLint: helm lint --strict has nothing to say but that an icon is missing.
func TestLint(t *testing.T) {
	result := lint.All(folder, map[string]any{"image": map[string]any{"repository": "signalbox"}}, "locks", true)
	for _, m := range result.Messages {
		if !strings.Contains(m.Err.Error(), "icon is recommended") {
			t.Errorf("%v", m)
		}
	}
}

// TestVersion: the chart in the tree has the version of the tree.
func TestVersion(t *testing.T) {
	m := load(t).Metadata
	release := regexp.MustCompile(`TreeVersion = "([^"]+)"`).FindStringSubmatch(read(t, "../../release/release.go"))
	if release == nil || m.Version != release[1] || m.AppVersion != m.Version {
		t.Errorf("the chart is %s of %s, and the program %v", m.Version, m.AppVersion, release)
	}
}
