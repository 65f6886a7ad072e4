package main

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/certs/certstest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/trust/trusttest"
)

// TestPlatforms pastes the block of OPERATIONS.md about platforms, and takes a lock with a token in
// the form of each: GitHub's and GitLab's as their documentation has it, Kubernetes', and a
// JWT-SVID. The issuers themselves cannot be reached, so their keys are given. An X.509-SVID takes
// it by the second block.
func TestPlatforms(t *testing.T) {
	t.Parallel()
	dir, issuer := t.TempDir(), trusttest.New(t)
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const cluster = "https://kubernetes.default.svc.cluster.local"
	keys := write("jwks.json", string(issuer.Keys(t)), 0o600)
	bundle := strings.Replace(string(issuer.Keys(t)), `"kty"`, `"use":"jwt-svid","kty"`, 1)
	write("bundle", bundle, 0o600)
	ca := certstest.New(t)
	bundleFile := ca.Write(t, dir)
	serverCert, serverKey := ca.Issue(t, dir, "server", certstest.Host("127.0.0.1"))
	svid, svidKey := ca.Issue(t, dir, "svid", func(c *x509.Certificate) {
		c.URIs = []*url.URL{{Scheme: "spiffe", Host: "example.org", Path: "/billing/api"}}
	})
	for name, script := range map[string]string{"kubectl": "echo '{}'", "jq": "cat >/dev/null; echo " + cluster,
		"spire-server": "cat bundle", "deploy.sh": "echo deployed",
		"spire-agent": "cp " + svid + " svid.0.pem; cp " + svidKey + " svid.0.key; cp " + bundleFile + " bundle.0.pem"} {
		write(name, "#!/bin/sh\n"+script+"\n", 0o700)
	}
	addr, tlsAddr, data := freeAddress(), freeAddress(), filepath.Join(dir, "data")
	start(t, []string{"HTTPS_PROXY=http://127.0.0.1:1"}, "signalbox", "serve", "--auth", "--data", data, "--listen", addr,
		"--raft", freeAddress(), "--admin", "off", "--shards", "2", "--listen-tls", tlsAddr, "--listen-tls-cert", serverCert,
		"--listen-tls-key", serverKey, "--listen-tls-client-ca", bundleFile)
	env := []string{"SIGNALBOX_ENDPOINTS=" + addr, "PATH=" + dir + ":" + os.Getenv("PATH"),
		"SIGNALBOX_TOKEN_FILE=" + filepath.Join(data, "admin-token")}
	await.True(t, "the administrator's token", func() bool {
		_, err := os.Stat(filepath.Join(data, "admin-token"))
		return err == nil
	})
	expect(t, 0, env, "signalbox", "auth", "whoami", "--timeout", "60s")
	_, section, _ := strings.Cut(readPage(t, "../../server/OPERATIONS.md"), "### Tokens of a platform")
	t.Log(expect(t, 0, env, "sh", "-ec", "cd "+dir+"\n"+fenced(section, "sh")[0]))
	for name, x := range map[string]struct {
		subject, identity string
		claims            map[string]any
	}{
		"github": {"repo:octo/api:ref:refs/heads/main", "ci-main", map[string]any{
			"iss": "https://token.actions.githubusercontent.com", "jti": "example-id", "environment": "production", "ref": "refs/heads/main",
			"sha": "example-sha", "repository": "octo/api", "repository_owner": "octo", "run_id": "1", "run_number": "10", "run_attempt": "2",
			"actor": "octocat", "workflow": "deploy", "event_name": "push", "ref_type": "branch", "nbf": time.Now().Unix() - 600,
			"job_workflow_ref": "octo/api/.github/workflows/deploy.yml@refs/heads/main", "iat": time.Now().Unix()}},
		"gitlab": {"project_path:octo/api:ref_type:branch:ref:main", "ci-main", map[string]any{
			"iss": "https://gitlab.com", "namespace_id": "72", "namespace_path": "octo", "project_id": "20", "project_path": "octo/api",
			"user_id": "1", "pipeline_id": "574", "pipeline_source": "push", "job_id": "302", "ref": "main", "ref_type": "branch",
			"ref_path": "refs/heads/main", "ref_protected": "true", "runner_id": 1, "iat": time.Now().Unix(), "nbf": time.Now().Unix() - 5}},
		"prod": {"system:serviceaccount:billing:api", "billing", map[string]any{"iss": cluster, "aud": []string{"signalbox"},
			"kubernetes.io": map[string]any{"namespace": "billing", "node": map[string]any{"name": "n1", "uid": "u1"},
				"pod":            map[string]any{"name": "api-1", "uid": "u2"},
				"serviceaccount": map[string]any{"name": "api", "uid": "u3"}, "warnafter": time.Now().Unix() + 600}}},
		"spire": {"spiffe://example.org/billing/api", "billing", map[string]any{"iss": nil, "aud": []string{"signalbox"}}},
	} {
		if name != "spire" {
			expect(t, 0, env, "signalbox", "auth", "trust", "keys", name, "--from", keys)
		}
		token := write(name+".jwt", issuer.Token(t, x.subject, time.Hour, x.claims), 0o600)
		out := expect(t, 0, env, "signalbox", "auth", "trust", "test", name, "--from", token)
		if want := fmt.Sprintf("%s, by rule 1; the token of %s is valid for", x.identity, x.subject); !strings.Contains(out, want) {
			t.Errorf("%s: %s", name, out)
		}
		if out := expect(t, 0, env, "signalbox", "lock", "deploy", "--token-file", token, "--", "echo", "deployed"); !strings.Contains(out, "deployed") {
			t.Errorf("%s: %s", name, out)
		}
	}
	if out := expect(t, 0, []string{"SIGNALBOX_ENDPOINTS=" + tlsAddr, "PATH=" + os.Getenv("PATH") + ":" + dir}, "sh", "-ec",
		"cd "+dir+"\n"+fenced(section, "sh")[1]); !strings.Contains(out, "deployed") {
		t.Errorf("with a certificate: %s", out)
	}
}
