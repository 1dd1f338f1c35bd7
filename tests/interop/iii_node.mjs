// The worker of iii_python.py with the Node SDK.
import readline from 'node:readline'
import { registerWorker, TriggerAction } from 'iii-sdk'
import { createChannel } from 'iii-sdk/helpers'

const logs = []
const say = (message) => process.stdout.write(JSON.stringify(message) + '\n')
for (const level of ['warn', 'error']) {
  console[level] = (...parts) => logs.push(`${level === 'warn' ? 'WARNING' : 'ERROR'}: ${parts.join(' ')}`)
}
console.log = console.info = console.debug = () => {}

const options = process.argv[3] ? JSON.parse(process.argv[3]) : undefined
const client = registerWorker(process.argv[2], options)
const refs = new Map()

const handler = (name, behaviour, gives) => async (data, metadata) => {
  say({ event: 'called', function: name, data: ['size', 'read'].includes(behaviour) ? null : data, metadata })
  if (behaviour === 'fail') throw new Error('it went wrong')
  if (behaviour === 'hang') await new Promise(() => {})
  if (behaviour === 'nothing') return undefined
  if (behaviour === 'give') return gives
  if (behaviour === 'relay') return { relayed: await client.trigger(data) }
  if (behaviour === 'read') return { bytes: (await data.reader.readAll()).length }
  return { echo: data, metadata: metadata ?? null, null: null, size: behaviour === 'size' ? data.length : 0 }
}

const ticks = {
  registerTrigger: async (config) => {
    if (config.config?.refuse) throw new Error('such a binding is refused')
    say({ event: 'bound', id: config.id, function: config.function_id, config: config.config })
  },
  unregisterTrigger: async (config) => say({ event: 'unbound', id: config.id }),
}

const trigger = async ({ action, size, timeout_ms: timeoutMs, ...request }) => {
  const actions = { void: TriggerAction.Void(), enqueue: TriggerAction.Enqueue({ queue: 'jobs' }) }
  if (size) request.payload = 'x'.repeat(size)
  const answer = await client.trigger({ ...request, timeoutMs, ...(action ? { action: actions[action] } : {}) })
  return size > 100_000 ? { length: JSON.stringify(answer).length } : (answer ?? null)
}

const stream = async (size) => {
  const channel = await createChannel(client, 64)
  const reading = client.trigger({ function_id: 'peer::read', payload: { reader: channel.readerRef } })
  channel.writer.stream.end(Buffer.alloc(size, 'x'))
  return await reading
}

const ops = {
  function: ({ id, behaviour, gives, description, request_format, metadata }) =>
    void refs.set(id, client.registerFunction(id, handler(id, behaviour ?? 'echo', gives), { description, request_format, metadata })),
  outside: ({ id, place }) => void refs.set(id, client.registerFunction(id, place)),
  unfunction: ({ id }) => refs.get(id).unregister(),
  unbind: ({ id }) => refs.get(id).unregister(),
  trigger: ({ request }) => trigger(request),
  type: ({ id }) => void client.registerTriggerType({ id, description: 'Ticks' }, ticks),
  bind: ({ id, request }) => void refs.set(id, client.registerTrigger(request)),
  stream: ({ size }) => stream(size),
  logs: () => logs,
  wait_for_log: async ({ text }) => {
    for (let n = 0; n < 6000 && !logs.some((line) => line.includes(text)); n++) {
      await new Promise((done) => setTimeout(done, 10))
    }
    return logs
  },
}

const answer = async ({ number, op, ...given }) => {
  try {
    say({ number, ok: (await ops[op](given)) ?? null })
  } catch (error) {
    say({ number, error: { code: error.code ?? error.name, message: error.message } })
  }
}

const ready = setInterval(() => {
  if (client.connectionState !== 'connected') return
  clearInterval(ready)
  say({ event: 'ready' })
}, 5)
const lines = readline.createInterface({ input: process.stdin })
lines.on('line', (line) => answer(JSON.parse(line)))
lines.on('close', () => client.shutdown().then(() => process.exit(0)))
