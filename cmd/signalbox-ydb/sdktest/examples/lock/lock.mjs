import { create } from '@bufbuild/protobuf'
import { CoordinationServiceDefinition, CreateNodeRequestSchema, SessionRequestSchema } from '@ydbjs/api/coordination'
import { Driver } from '@ydbjs/core'

const driver = new Driver(process.argv[2])
await driver.ready()
const coordination = driver.createClient(CoordinationServiceDefinition)
await coordination.createNode(create(CreateNodeRequestSchema, { path: '/local/demo' }))

const all = 2n ** 64n - 1n
const queue = [], wake = []
const send = (kind, value) => {
	queue.push(create(SessionRequestSchema, { request: { case: kind, value } }))
	wake.pop()?.()
}
async function* requests() {
	for (;;) {
		while (queue.length > 0) yield queue.shift()
		await new Promise((resolve) => wake.push(resolve))
	}
}
send('sessionStart', { path: '/local/demo', timeoutMillis: 10000n })
for await (const { response } of coordination.session(requests())) {
	if (response.case === 'ping') send('pong', response.value)
	if (response.case === 'sessionStarted') send('acquireSemaphore', { reqId: 1n, name: 'backup', count: all, timeoutMillis: all, ephemeral: true })
	if (response.case === 'acquireSemaphoreResult' && response.value.acquired) {
		console.log('the lock is held') // work here, and go on answering pings
		send('sessionStop', {})
	}
	if (response.case === 'sessionStopped' || response.case === 'failure') break
}
driver.close()
